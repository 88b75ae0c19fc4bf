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
