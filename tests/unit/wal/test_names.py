"""Names that are taken ahead: when, for how long, and what becomes of those that are not used."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from lakebed.errors import Unavailable
from lakebed.objects import Key, MemoryStore
from lakebed.wal.names import Names
from tests.unit.streams.plane import fake_clock

AHEAD = 32


class Ledger(MemoryStore):
    """Remembers what was reserved, as a folder would do it."""

    def __init__(self) -> None:
        super().__init__()
        self.reserved: set[Key] = set()
        self.away = False

    async def reserve(self, keys: Sequence[Key]) -> bool:
        if self.away:
            raise Unavailable("away")
        self.reserved |= set(keys)
        return True

    async def delete(self, key: Key) -> None:
        self.reserved.discard(key)


async def take(names: Names, count: int) -> list[str]:
    """So many ids, at the pace of an event loop."""
    taken = []
    for _ in range(count):
        taken.append(str(names.take().object_id))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return taken


async def test_few_objects_reserve_nothing() -> None:
    store, clock = Ledger(), fake_clock()
    await take(Names(store, "none", 0, clock, AHEAD), AHEAD - 1)
    assert not store.reserved


async def test_who_wants_none_gets_none() -> None:
    store, clock = Ledger(), fake_clock()
    await take(Names(store, "none", 0, clock, 0), 10)
    assert not store.reserved


async def test_slow_objects_reserve_nothing() -> None:
    store, clock = Ledger(), fake_clock()
    names = Names(store, "none", 0, clock, AHEAD)
    for _ in range(2 * AHEAD):
        await take(names, 1)
        await clock.jump(0.1)
    assert not store.reserved


async def test_quick_objects_use_reserved_names_each_once() -> None:
    store, clock = Ledger(), fake_clock()
    taken = await take(Names(store, "none", 0, clock, AHEAD), 10 * AHEAD)
    assert len(set(taken)) == 10 * AHEAD
    used = [each for each in taken if any(each in key for key in store.reserved)]
    assert len(used) > 8 * AHEAD


async def test_names_that_have_waited_too_long_are_released_and_not_used() -> None:
    store, clock = Ledger(), fake_clock()
    names = Names(store, "none", 0, clock, AHEAD)
    used = await take(names, 2 * AHEAD)
    left = {key for key in store.reserved if not any(each in key for each in used)}
    assert left
    await clock.jump(11)
    (taken,) = await take(names, 1)
    await names.close()
    assert not any(taken in key for key in left)
    assert not left & store.reserved


async def test_store_that_is_away_holds_up_nobody() -> None:
    store, clock = Ledger(), fake_clock()
    store.away = True
    names = Names(store, "none", 0, clock, AHEAD)
    assert len(set(await take(names, 4 * AHEAD))) == 4 * AHEAD
    store.away = False
    await take(names, AHEAD)
    assert store.reserved


async def test_store_that_has_no_use_for_it_is_asked_once() -> None:
    store, clock = Asked(), fake_clock()
    await take(Names(store, "none", 0, clock, AHEAD), 4 * AHEAD)
    assert store.asked == 1


class Asked(MemoryStore):
    asked = 0

    async def reserve(self, keys: Sequence[Key]) -> bool:
        self.asked += 1
        return False
