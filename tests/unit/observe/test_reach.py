"""Whether what the program depends on answers."""

from __future__ import annotations

import asyncio

from lakebed.clock import FakeClock
from lakebed.errors import Unavailable
from lakebed.observe import Health, Reach


class Store:
    """Answers, refuses, or says nothing at all."""

    def __init__(self) -> None:
        self.mood = "well"
        self.asked = 0

    async def ask(self) -> None:
        self.asked += 1
        if self.mood == "refuses":
            raise Unavailable("the bucket is closed", "Open it")
        if self.mood == "hangs":
            await asyncio.Event().wait()


async def test_silence_is_told_with_its_reason_after_patience_and_forgotten_with_the_next_answer() -> None:
    health, clock, store = Health(), FakeClock(), Store()
    reach = Reach(health, clock, every_s=5, patience_s=12)
    reach.watch("store", store.ask)
    await clock.jump(20)
    assert health.ready().ok
    store.mood = "refuses"
    await clock.jump(6)
    assert health.ready().ok
    await clock.jump(20)
    (check,) = health.ready().checks
    assert not check.ok
    assert "out of reach for" in check.reason
    assert "the bucket is closed. Open it" in check.reason
    store.mood = "well"
    await clock.jump(6)
    assert health.ready().ok
    assert health.alive().ok
    await reach.close()


async def test_store_that_never_answers_is_asked_by_one_question_at_a_time() -> None:
    health, clock, store = Health(), FakeClock(), Store()
    store.mood = "hangs"
    reach = Reach(health, clock, every_s=1, timeout_s=0.05, patience_s=3)
    reach.watch("store", store.ask)
    await clock.jump(2)
    assert store.asked == 1
    async with asyncio.timeout(10):
        while health.ready().ok or store.asked < 3:
            await asyncio.sleep(0.06)
            await clock.jump(2)
    assert "no answer within 0.05 s" in health.ready().checks[0].reason
    await reach.close()
