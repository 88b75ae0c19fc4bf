"""Many seeds of a very faulty store: answers and log agree, whatever goes wrong. A seed that fails can be run again."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest

from lakebed.clock import SystemClock
from lakebed.kernel import FaultyLogStore, LogStore, ObjectLogStore
from lakebed.objects import FaultRates, FaultSchedule, FaultyStore, MemoryStore
from tests.contract.check_commit_log import random_transactions
from tests.logs import PREFIX

SOAK = os.environ.get("LAKEBED_SOAK") == "1"
pytestmark = [pytest.mark.slow] if SOAK else []
UNRELIABLE = FaultRates(refused=0.12, answer_lost=0.12, lands_later=0.12, repeated=0.12, delayed=0.05, cut_short=0.1)
HARDLY_THERE = FaultRates(refused=0.45, answer_lost=0.1, lands_later=0.2, repeated=0.1, delayed=0.0, cut_short=0.1)


@pytest.mark.parametrize("below", [False, True], ids=["log store", "objects below it"])
@pytest.mark.parametrize("first", range(0, 2000 if SOAK else 30, 10))
async def test_unreliable_store_changes_no_answer(first: int, below: bool) -> None:
    for seed in range(first, first + 10):
        await _run(seed, below, UNRELIABLE, 2.0)


@pytest.mark.parametrize("below", [False, True], ids=["log store", "objects below it"])
async def test_store_that_is_hardly_there_leaves_some_unknown_and_none_wrong(below: bool) -> None:
    found: Counter[str] = Counter()
    for seed in range(200 if SOAK else 4):
        found.update(type(answer).__name__ for answer in (await _run(seed, below, HARDLY_THERE, 0.1)).values())
    assert found["Unknown"] > 0
    assert found["Committed"] > 0


async def _run(seed: int, below: bool, rates: FaultRates, timeout_s: float) -> dict[str, Any]:
    objects, schedules = MemoryStore(), list[FaultSchedule]()

    async def truth() -> LogStore:
        return ObjectLogStore(objects, PREFIX, SystemClock(), 0.01)

    async def make() -> LogStore:
        schedule = FaultSchedule(seed * 1000 + len(schedules), rates, delay_s_max=0.001, calls_late_max=20)
        schedules.append(schedule)
        if below:
            return ObjectLogStore(FaultyStore(objects, schedule), PREFIX, SystemClock(), 0.01)
        return FaultyLogStore(await truth(), schedule)

    def calm() -> None:
        for schedule in schedules:
            schedule.calm()

    return await random_transactions(make, truth, seed, timeout_s, calm)
