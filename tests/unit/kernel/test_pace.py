"""A disk is waited for only while it is quick."""

from __future__ import annotations

from lakebed.kernel.pace import Pace

LIMIT_S = 0.002


def paced(*seconds: float) -> Pace:
    pace = Pace(LIMIT_S)
    for each in seconds:
        pace.took(each)
    return pace


def test_quick_commits_stay_with_the_loop() -> None:
    assert paced(*[0.0005] * 1000).is_quick


def test_one_that_takes_long_sends_the_next_to_a_thread() -> None:
    assert not paced(*[0.0005] * 100, 0.5).is_quick


def test_many_that_are_a_little_slow_do_so_too() -> None:
    assert not paced(*[0.004] * 20).is_quick


def test_a_disk_that_is_quick_again_is_trusted_again_after_a_while() -> None:
    assert not paced(0.5, *[0.0005] * 20).is_quick
    assert paced(0.5, *[0.0005] * 200).is_quick


def test_without_a_limit_nothing_is_quick() -> None:
    pace = Pace(0)
    for _ in range(1000):
        assert not pace.is_quick
        pace.took(0.00001)
