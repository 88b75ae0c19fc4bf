"""What every log store must do, as functions: each opens instances of one log through `make` and tries to break it.

`make(name)` opens another instance of the log `name` below a place that no other check has used; two calls with one
name are two processes, as far as the store can tell.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from lakebed.clock import within
from lakebed.errors import Conflict, Exists
from lakebed.kernel.store import NO_VERSION, LogStore, Version

Make = Callable[[str], Awaitable[LogStore]]
Check = Callable[[Make], Awaitable[None]]

LOG = "meta/domain=00/_delta_log"
COMMIT_BYTES_MAX = 4 * 1024 * 1024
SOON_S = 20.0
RACES, RACERS = 4, 5


async def check_empty_log_has_nothing(make: Make) -> None:
    store = await make(LOG)
    assert await store.read(Version(0)) is None
    assert await store.read_many(Version(0), 10) == []
    assert await store.versions(NO_VERSION) == []
    assert await store.delete_commits(Version(10)) == 0
    assert await store.documents() == []
    assert await store.get_document("absent.json") is None
    await store.delete_document("absent.json")


async def check_commit_is_read_back_as_written(make: Make) -> None:
    writer, reader = await make(LOG), await make(LOG)
    body = bytes(range(256)) * 3
    await writer.create(Version(0), body)
    assert await writer.read(Version(0)) == body
    assert await reader.read(Version(0)) == body
    assert await reader.read(Version(1)) is None


async def check_second_creator_gets_exists_and_changes_nothing(make: Make) -> None:
    first, second = await make(LOG), await make(LOG)
    await first.create(Version(0), b"first")
    for late in (second, first):
        with pytest.raises(Exists):
            await late.create(Version(0), b"second")
    assert await second.read(Version(0)) == b"first"


async def check_racers_win_each_number_once(make: Make) -> None:
    stores = [await make(LOG) for _ in range(3)]
    for version in map(Version, range(RACES)):
        bodies = [f"{version} by {racer}".encode() for racer in range(RACERS)]
        results = await asyncio.gather(*(_try(stores[racer % 3], version, body) for racer, body in enumerate(bodies)))
        won = [body for body, result in zip(bodies, results, strict=True) if result]
        assert len(won) == 1
        assert await stores[version % 3].read(version) == won[0]
    assert await stores[0].versions(NO_VERSION) == list(range(RACES))


async def check_read_many_stops_at_the_first_gap(make: Make) -> None:
    store = await make(LOG)
    for version in [0, 1, 2, 4, 5]:
        await store.create(Version(version), f"body {version}".encode())
    assert await store.read_many(Version(0), 10) == [b"body 0", b"body 1", b"body 2"]
    assert await store.read_many(Version(1), 1) == [b"body 1"]
    assert await store.read_many(Version(3), 10) == []
    assert await store.read_many(Version(4), 2) == [b"body 4", b"body 5"]
    assert await store.read_many(Version(0), 0) == []


async def check_long_runs_are_read_whole(make: Make) -> None:
    writer, reader = await make(LOG), await make(LOG)
    await asyncio.gather(*(writer.create(Version(version), str(version).encode()) for version in range(300)))
    assert await reader.read_many(Version(0), 1000) == [str(version).encode() for version in range(300)]
    assert await reader.read_many(Version(10), 280) == [str(version).encode() for version in range(10, 290)]


async def check_versions_are_listed_in_order_of_number(make: Make) -> None:
    store = await make(LOG)
    numbers = [0, 9, 10, 99, 100, 10**12]
    for number in reversed(numbers):
        await store.create(Version(number), b"{}")
    assert await store.versions(NO_VERSION) == numbers
    assert await store.versions(Version(0)) == numbers[1:]
    assert await store.versions(Version(9)) == numbers[2:]
    assert await store.versions(Version(10**12)) == []


async def check_deleting_takes_what_is_below_and_nothing_else(make: Make) -> None:
    store = await make(LOG)
    for version in range(10):
        await store.create(Version(version), b"{}")
    await store.put_document("00000000000000000005.checkpoint.json", b"state")
    assert await store.delete_commits(Version(0)) == 0
    assert await store.delete_commits(Version(6)) == 6
    assert await store.versions(NO_VERSION) == [6, 7, 8, 9]
    assert await store.read(Version(5)) is None
    assert await store.read(Version(6)) == b"{}"
    assert await store.delete_commits(Version(6)) == 0
    assert await store.documents() == ["00000000000000000005.checkpoint.json"]


async def check_largest_commit_fits(make: Make) -> None:
    writer, reader = await make(LOG), await make(LOG)
    bodies = [os.urandom(COMMIT_BYTES_MAX) for _ in range(3)]
    for version, body in enumerate(bodies):
        await writer.create(Version(version), body)
    assert await reader.read(Version(0)) == bodies[0]
    assert await reader.read_many(Version(0), 5) == bodies


async def check_documents_are_put_listed_and_deleted(make: Make) -> None:
    writer, reader = await make(LOG), await make(LOG)
    await writer.create(Version(0), b"{}")
    await writer.put_document("b.json", b"old")
    await writer.put_document("b.json", b"new")
    await writer.put_document("a.json.zst", b"\x00\xff")
    assert await reader.documents() == ["a.json.zst", "b.json"]
    found = await reader.get_document("b.json")
    assert found is not None
    assert found[0] == b"new"
    await writer.delete_document("b.json")
    assert await reader.get_document("b.json") is None
    assert await reader.documents() == ["a.json.zst"]
    assert await reader.versions(NO_VERSION) == [0]


async def check_swapping_needs_the_current_etag(make: Make) -> None:
    one, other = await make(LOG), await make(LOG)
    await one.swap_document("pointer", b"1", None)
    with pytest.raises(Conflict):
        await other.swap_document("pointer", b"2", None)
    _, etag = await other.get_document("pointer") or pytest.fail("the pointer is gone")
    await other.swap_document("pointer", b"2", etag)
    with pytest.raises(Conflict):
        await one.swap_document("pointer", b"3", etag)
    body, _ = await one.get_document("pointer") or pytest.fail("the pointer is gone")
    assert body == b"2"
    await one.delete_document("pointer")
    with pytest.raises(Conflict):
        await one.swap_document("pointer", b"4", etag)


async def check_swappers_of_one_etag_win_once(make: Make) -> None:
    stores = [await make(LOG) for _ in range(3)]
    await stores[0].put_document("pointer", b"start")
    _, etag = await stores[0].get_document("pointer") or pytest.fail("the pointer is gone")
    results = await asyncio.gather(
        *(_try_swap(stores[racer], f"by {racer}".encode(), etag) for racer in range(3)),
    )
    assert sum(results) == 1
    body, _ = await stores[0].get_document("pointer") or pytest.fail("the pointer is gone")
    assert body == f"by {results.index(True)}".encode()


async def check_waiter_hears_of_anothers_commit(make: Make) -> None:
    writer, waiter = await make(LOG), await make(LOG)
    await writer.create(Version(0), b"{}")
    for version in map(Version, range(1, 4)):
        hearing = asyncio.create_task(_wait_until_there(waiter, version))
        await asyncio.sleep(0)
        await writer.create(version, b"{}")
        await within(SOON_S, hearing)


async def check_waiting_for_what_exists_returns_at_once(make: Make) -> None:
    writer, waiter = await make(LOG), await make(LOG)
    await writer.create(Version(0), b"{}")
    await within(SOON_S, waiter.wait(Version(0), 10 * SOON_S))
    assert await waiter.read(Version(0)) is not None


async def check_waiting_in_vain_ends(make: Make) -> None:
    store = await make(LOG)
    await within(SOON_S, store.wait(Version(0), 0.05))
    await store.create(Version(0), b"{}")
    await within(SOON_S, store.wait(Version(7), 0.05))


async def check_neighbouring_logs_do_not_mix(make: Make) -> None:
    names = ["meta/domain=0/_delta_log", "meta/domain=00/_delta_log", "meta/domain=00/_delta_log2"]
    stores = [await make(name) for name in names]
    for at, store in enumerate(stores):
        await store.create(Version(at), names[at].encode())
        await store.put_document(f"{at}.json", b"{}")
    for at, store in enumerate(stores):
        assert await store.versions(NO_VERSION) == [at]
        assert await store.read(Version(at)) == names[at].encode()
        assert await store.documents() == [f"{at}.json"]
    assert await stores[1].delete_commits(Version(10)) == 1
    assert await stores[0].versions(NO_VERSION) == [0]
    assert await stores[2].versions(NO_VERSION) == [2]


async def check_closing_one_instance_leaves_the_others(make: Make) -> None:
    one, other = await make(LOG), await make(LOG)
    await one.create(Version(0), b"{}")
    await one.close()
    await other.create(Version(1), b"{}")
    assert await other.versions(NO_VERSION) == [0, 1]


CHECKS: list[Check] = [check for name, check in sorted(globals().items()) if name.startswith("check_")]


async def _try(store: LogStore, version: Version, body: bytes) -> bool:
    with suppress(Exists):
        await store.create(version, body)
        return True
    return False


async def _try_swap(store: LogStore, body: bytes, etag: str) -> bool:
    with suppress(Conflict):
        await store.swap_document("pointer", body, etag)
        return True
    return False


async def _wait_until_there(store: LogStore, version: Version) -> None:
    while await store.read(version) is None:
        await store.wait(version, SOON_S)
