"""A disk is waited for only while it is quick."""

from __future__ import annotations

from lakebed.kernel.pace import Pace

LIMIT_S = 0.001


def paced(*seconds: float) -> Pace:
    pace = Pace(LIMIT_S)
    for each in seconds:
        pace.took(each)
    return pace


def test_quick_commits_stay_with_the_loop() -> None:
    assert paced().is_quick
    assert paced(*[0.0005] * 1000).is_quick


def test_commits_that_wait_for_a_core_now_and_then_do_so_too() -> None:
    assert paced(*[0.0005, 0.004, 0.006] * 20).is_quick


def test_a_stall_sends_the_next_ones_to_a_thread_for_a_while() -> None:
    assert not paced(*[0.0005] * 100, 0.5).is_quick
    assert not paced(0.5, *[0.0005] * 60).is_quick
    assert paced(0.5, *[0.0005] * 70).is_quick


def test_a_disk_that_is_never_quick_is_not_waited_for() -> None:
    assert not paced(*[0.003] * 20).is_quick
    assert paced(*[0.003] * 20, *[0.0005] * 16).is_quick


def test_a_disk_that_is_mostly_slow_is_not_either() -> None:
    assert not paced(*[0.0005, *[0.010] * 9] * 10).is_quick


def test_without_a_limit_nothing_is_quick() -> None:
    pace = Pace(0)
    for _ in range(1000):
        assert not pace.is_quick
        pace.took(0.00001)
