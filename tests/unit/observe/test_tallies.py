"""Plain numbers that become metrics when they are read."""

from __future__ import annotations

from lakebed.observe import Metrics


def test_tally_is_told_as_a_counter_and_a_histogram() -> None:
    metrics = Metrics()
    tallies = metrics.tallies(("asked", "Questions"), ("answer_seconds", "Times"), "api", (0.1, 1.0))
    tally = tallies.of("fetch")
    for seconds in (0.05, 0.1, 0.5, 7.0):
        tally.begun += 1
        tally.ended(seconds)
    assert tallies.of("fetch") is tally
    assert metrics.value("lakebed_asked_total", api="fetch") == 4
    assert [metrics.value("lakebed_answer_seconds_bucket", api="fetch", le=le) for le in ("0.1", "1.0", "+Inf")] == [
        2,
        3,
        4,
    ]
    assert metrics.value("lakebed_answer_seconds_count", api="fetch") == 4
    assert metrics.value("lakebed_answer_seconds_sum", api="fetch") == 7.65


def test_counted_total_is_told_in_the_text() -> None:
    metrics = Metrics()
    metrics.counted("sent_bytes", "Bytes sent").total += 12
    assert b"lakebed_sent_bytes_total 12.0" in metrics.text()


def test_counts_and_spreads_are_told_by_label_and_are_the_same_for_who_asks_again() -> None:
    metrics = Metrics()
    metrics.counts("won", "Commits won", "log").labels("a").inc()
    metrics.counts("won", "Commits won", "log").labels("a").inc(2)
    metrics.spreads("size_bytes", "Sizes", "log", (1e3, 2.56e8)).labels("b").observe(2000)
    assert metrics.value("lakebed_won_total", log="a") == 3
    assert metrics.value("lakebed_size_bytes_bucket", log="b", le="1000.0") == 0
    assert metrics.value("lakebed_size_bytes_bucket", log="b", le="2.56e+08") == 1
    assert metrics.value("lakebed_size_bytes_sum", log="b") == 2000
