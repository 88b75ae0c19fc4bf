"""Stores that ignore preconditions are refused; honest ones pass and stay clean."""

from __future__ import annotations

import pytest

from lakebed.errors import Conflict, Exists, Invalid
from lakebed.objects import (
    Body,
    Drawn,
    ETag,
    Fault,
    FaultSchedule,
    FaultyStore,
    Key,
    MemoryStore,
    prove_preconditions,
)


class IgnoresCreate(MemoryStore):
    async def create(self, key: Key, body: Body) -> ETag:
        return await self.put(key, body)


class IgnoresEtags(MemoryStore):
    async def replace(self, key: Key, body: Body, etag: ETag) -> ETag:
        return await self.put(key, body)


class RefusesButStores(MemoryStore):
    async def create(self, key: Key, body: Body) -> ETag:
        taken = key in self._objects
        etag = await self.put(key, body)
        if taken:
            raise Exists("exists")
        return etag


class LooksThenWrites(MemoryStore):
    """Checks and writes in two steps, so that racers all win."""

    async def create(self, key: Key, body: Body) -> ETag:
        taken = key in self._objects
        await self._begin(key)
        if taken:
            raise Exists("exists")
        return self._store(key, body)


class SameEtags(MemoryStore):
    async def create(self, key: Key, body: Body) -> ETag:
        await super().create(key, body)
        return ETag("same")

    async def replace(self, key: Key, body: Body, etag: ETag) -> ETag:
        if etag != "same" or key not in self._objects:
            raise Conflict("changed")
        await self.put(key, body)
        return ETag("same")


@pytest.mark.parametrize("store", [IgnoresCreate, IgnoresEtags, RefusesButStores, LooksThenWrites, SameEtags])
async def test_store_that_breaks_its_word_is_refused_with_a_remedy(store: type[MemoryStore]) -> None:
    with pytest.raises(Invalid) as refusal:
        await prove_preconditions(store())
    assert "is refused" in refusal.value.problem
    assert "If-None-Match" in refusal.value.remedy


async def test_honest_store_passes_and_is_left_clean() -> None:
    store = MemoryStore()
    await prove_preconditions(store)
    assert [info.key async for info in store.list()] == []


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.ANSWER_LOST, Fault.LANDS_LATER, Fault.REPEATED])
@pytest.mark.parametrize("place", range(12))
async def test_one_fault_does_not_get_an_honest_store_refused(fault: Fault, place: int) -> None:
    schedule = FaultSchedule.replay([Drawn(Fault.NONE)] * place + [Drawn(fault, 0.2)])
    await prove_preconditions(FaultyStore(MemoryStore(), schedule))
