"""The past of a log, and news of it: time travel, changes, waiting, clean-up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lakebed.clock import FakeClock, unix_ms, within
from lakebed.errors import Closed, Corrupt, NotFound
from lakebed.kernel import CleanUp, CommitLog, Committed, LogStore, Version, floor_of, oldest_version, verify
from lakebed.kernel.documents import commit_name
from lakebed.objects import MemoryStore
from tests.intercepted import Intercepted
from tests.logs import REGISTRY, file_store, increment, object_store, open_log, put, state_bytes

RETENTION_S = 1000.0


async def test_any_old_version_and_moment_can_be_read(tmp_path: Path) -> None:
    clock = FakeClock()
    log = await open_log(file_store(tmp_path), clock=clock)
    states = {0: state_bytes(log.current)}
    stamps = {0: unix_ms(log.current.timestamp)}
    for number in range(1, 301):
        clock.suspend(1.5)
        result = await log.commit(increment(f"k{number % 9}"), txn_id=f"t{number}")
        assert isinstance(result, Committed)
        states[number], stamps[number] = state_bytes(log.current), unix_ms(result.timestamp)
    for number in (0, 1, 9, 10, 11, 255, 256, 257, 299, 300):
        assert state_bytes(await log.snapshot(Version(number))) == states[number]
        for late_ms in (0, 1, 1499):
            assert (await log.snapshot(at_ms=stamps[number] + late_ms)).version == number
    with pytest.raises(NotFound, match="no version 301 yet"):
        await log.snapshot(Version(301))
    with pytest.raises(NotFound, match="no version as old as"):
        await log.snapshot(at_ms=stamps[0] - 1)
    await log.close()


async def aged(store: LogStore, clock: FakeClock, commits: int = 60) -> CommitLog:
    """A log with three retentions behind it."""
    log = await open_log(store, clock=clock, retention_s=RETENTION_S)
    for number in range(commits):
        clock.suspend(3 * RETENTION_S / commits)
        await log.commit(increment("n"), txn_id=f"t{number}")
        if number % 5 == 0:
            await log.checkpoint()
    return log


async def test_clean_up_deletes_behind_a_floor_and_keeps_the_retention(tmp_path: Path) -> None:
    clock = FakeClock()
    log = await aged(file_store(tmp_path), clock)
    before = {version: state_bytes(await log.snapshot(Version(version))) for version in (41, 50, 60)}
    done = await log.clean_up()
    assert done.commits > 30
    assert done.documents > 5
    oldest, floor = oldest_version(log.current), floor_of(log.current)
    assert done.floor == floor.version > floor.deleted_below == oldest
    store = file_store(tmp_path)
    assert await store.versions(Version(-1)) == list(range(oldest, log.current.version + 1))
    for version, state in before.items():
        assert state_bytes(await log.snapshot(Version(version))) == state
    assert (await log.snapshot(oldest)).version == oldest
    with pytest.raises(NotFound, match="the oldest kept"):
        await log.snapshot(Version(oldest - 1))
    with pytest.raises(NotFound):
        await log.snapshot(at_ms=clock.now_ms() - int(2.9 * RETENTION_S * 1000))
    with pytest.raises(NotFound, match="cleaned up"):
        await anext(log.changes(Version(0)))
    assert await log.clean_up() == CleanUp()
    assert (await verify(store, REGISTRY)).findings == ()
    await log.close()
    again = await open_log(file_store(tmp_path), create=None, clock=clock)
    assert again.current.get("n").decode(int) == 60  # type: ignore[union-attr]
    await again.close()


async def test_young_log_is_not_cleaned_up() -> None:
    clock = FakeClock()
    log = await open_log(object_store(clock=clock), clock=clock, retention_s=RETENTION_S)
    for number in range(30):
        await log.commit(increment("n"), txn_id=f"t{number}")
    await log.checkpoint()
    assert await log.clean_up() == CleanUp()
    await log.close()


async def test_clean_up_keeps_two_good_checkpoints(tmp_path: Path) -> None:
    clock = FakeClock()
    log = await aged(file_store(tmp_path), clock)
    store = file_store(tmp_path)
    for name in [name for name in await store.documents() if "checkpoint.json" in name]:
        if int(name[:20]) < 35:
            await store.put_document(name, b"torn")
    await log.clean_up()
    good = [name for name in await store.documents() if "checkpoint.json" in name]
    assert len(good) >= 2
    assert all(int(name[:20]) >= oldest_version(log.current) >= 35 for name in good)
    assert (await verify(store, REGISTRY)).ok
    await log.close()


async def test_bundle_across_the_floor_stays_and_serves(tmp_path: Path) -> None:
    clock = FakeClock()
    log = await aged(file_store(tmp_path), clock, commits=600)
    await log.clean_up()
    oldest = oldest_version(log.current)
    assert 256 < oldest < 512
    store = file_store(tmp_path)
    assert [name for name in await store.documents() if "bundle" in name] == [f"{256:020d}.bundle.json"]
    assert (await verify(store, REGISTRY)).findings == ()
    assert (await log.snapshot(Version(oldest + 1))).version == oldest + 1
    await log.close()


async def test_clean_up_cut_short_is_finished_by_the_next(tmp_path: Path) -> None:
    clock = FakeClock()
    store = Intercepted(file_store(tmp_path))
    log = await aged(store, clock)

    async def cut(*_: object) -> None:
        raise Corrupt("cut short")

    store.hooks["delete_document"] = cut
    with pytest.raises(Corrupt):
        await log.clean_up()
    store.hooks.clear()
    found = await verify(store.inner, REGISTRY)
    assert found.ok
    assert {finding.severity for finding in found.findings} == {"note"}
    again = await open_log(file_store(tmp_path), create=None, clock=clock)
    assert again.current.get("n").decode(int) == 60  # type: ignore[union-attr]
    await again.close()
    for number in range(60):
        clock.suspend(3 * RETENTION_S / 60)
        await log.commit(increment("n"), txn_id=f"later{number}")
    await log.checkpoint()
    await log.checkpoint()
    await log.clean_up()
    assert (await verify(store.inner, REGISTRY)).findings == ()
    await log.close()


async def test_changes_follow_in_order_across_instances_and_bundles() -> None:
    objects = MemoryStore()
    writer, reader = await open_log(object_store(objects)), await open_log(object_store(objects))
    seen: list[tuple[int, str]] = []

    async def follow() -> None:
        async for commit in reader.changes(Version(-1)):
            seen.append((commit.version, commit.txn_id))
            if commit.version == 600:
                return

    following = asyncio.ensure_future(follow())
    for number in range(1, 601):
        await writer.commit(put("k", number), txn_id=f"t{number}")
    await within(20, following)
    assert seen == [(0, "create:log-1"), *((number, f"t{number}") for number in range(1, 601))]
    await writer.close()
    await reader.close()


async def test_missing_commit_stops_changes_instead_of_looping(tmp_path: Path) -> None:
    log = await open_log(file_store(tmp_path))
    for number in range(5):
        await log.commit(increment("n"), txn_id=f"t{number}")
    (Path(file_store(tmp_path).name) / commit_name(3)).unlink()
    changes = log.changes(Version(0))
    assert [(await anext(changes)).version for _ in range(2)] == [1, 2]
    with pytest.raises(Corrupt, match=commit_name(3)):
        await anext(changes)
    await log.close()


@pytest.mark.parametrize("kind", ["file", "object"])
async def test_waiter_hears_of_another_instances_commit(kind: str, tmp_path: Path) -> None:
    objects = MemoryStore()

    def make() -> LogStore:
        return file_store(tmp_path) if kind == "file" else object_store(objects)

    writer, reader = await open_log(make()), await open_log(make())
    assert await reader.wait_beyond(Version(-1), 0) == 0
    assert await reader.wait_beyond(Version(0), 0.05) == 0
    for number in range(1, 4):
        waiting = asyncio.ensure_future(reader.wait_beyond(Version(number - 1), 20))
        await asyncio.sleep(0)
        await writer.commit(put("k", number), txn_id=f"t{number}")
        assert await within(10, waiting) == number
    await writer.close()
    await reader.close()


async def test_many_waiters_share_one_watcher() -> None:
    objects = MemoryStore()
    store = Intercepted(object_store(objects))
    writer, reader = await open_log(object_store(objects)), await open_log(store)
    waits = 0

    async def counted(wait, *args):  # type: ignore[no-untyped-def]
        nonlocal waits
        waits += 1
        await wait(*args)

    store.hooks["wait"] = counted
    waiting = [asyncio.ensure_future(reader.wait_beyond(Version(0), 20)) for _ in range(100)]
    await asyncio.sleep(0.05)
    await writer.commit(put("k", 1), txn_id="1")
    assert set(await asyncio.gather(*waiting)) == {1}
    assert waits < 30
    await writer.close()
    await reader.close()


async def test_closed_log_refuses_instead_of_hanging(tmp_path: Path) -> None:
    log = await open_log(file_store(tmp_path))
    for number in range(3):
        await log.commit(increment("n"), txn_id=f"t{number}")
    await log.close()
    with pytest.raises(Closed):
        await within(5, anext(log.changes(Version(0))))
    with pytest.raises(Closed):
        await within(5, log.snapshot(Version(1)))
    with pytest.raises(Closed):
        await within(5, log._head.store.read(Version(0)))
