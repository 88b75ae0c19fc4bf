"""Health: alive, ready, and why not."""

from __future__ import annotations

from lakebed.errors import Unavailable
from lakebed.observe import CheckResult, Health


def test_program_without_checks_is_alive_and_ready() -> None:
    assert Health().alive().ok
    assert Health().ready().ok


def test_failing_check_makes_it_unready_with_the_reason_but_alive() -> None:
    health = Health()
    health.add("store", lambda: None, vital=True)
    health.add("log", lambda: "replaying, 40 commits to go")
    assert health.alive().ok
    assert not health.ready().ok
    assert health.ready().checks == (
        CheckResult("store", True),
        CheckResult("log", False, "replaying, 40 commits to go"),
    )


def test_failing_vital_check_makes_it_dead_and_unready() -> None:
    health = Health()
    health.add("loop", lambda: "stuck", vital=True)
    assert not health.alive().ok
    assert not health.ready().ok


def test_probe_that_raises_gives_its_error_as_the_reason() -> None:
    def probe() -> str | None:
        raise Unavailable("the bucket is away", "Wait")

    health = Health()
    health.add("bucket", probe)
    assert health.ready().checks[0].reason == "the bucket is away. Wait"


def test_check_can_be_replaced_and_removed() -> None:
    health = Health()
    health.add("log", lambda: "bad")
    health.add("log", lambda: None)
    assert health.ready().ok
    health.remove("log")
    health.remove("log")
    assert health.ready().checks == ()
