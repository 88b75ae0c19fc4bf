"""Processes that sleep while the world goes on: a number of the past is never taken for one of the present."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from lakebed.clock import FakeClock
from lakebed.errors import Ambiguous, Fenced, NotFound
from lakebed.kernel import (
    Commit,
    CommitLog,
    Committed,
    Decision,
    Put,
    Unknown,
    Version,
    View,
    check_fence,
    oldest_version,
    take_fence,
    verify,
)
from lakebed.kernel.checkpoint import POINTER
from lakebed.objects import Leases, MemoryStore
from tests.intercepted import Intercepted
from tests.logs import REGISTRY, increment, object_store, open_log, put, state_bytes

RETENTION_S = 1000.0


class World:
    """A log in a shared store, one process that never sleeps, and a clock for all."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.objects = MemoryStore(self.clock)
        self.store = object_store(self.objects, self.clock)
        self.awake: CommitLog
        self.opened: list[CommitLog] = []
        self.count = 0

    async def open(self, store: object = None) -> CommitLog:
        log = await open_log(store or self.store, clock=self.clock, retention_s=RETENTION_S, commit_timeout_s=1.0)  # type: ignore[arg-type]
        self.opened.append(log)
        return log

    async def sleeper(self) -> tuple[CommitLog, Intercepted]:
        store = Intercepted(object_store(self.objects, self.clock))
        return await self.open(store), store

    async def go_on(self, retentions: float) -> None:
        """Time passes and the one who is awake commits all the while."""
        for _ in range(int(retentions * 10)):
            self.clock.suspend(RETENTION_S / 10)
            self.count += 1
            assert isinstance(await self.awake.commit(increment("n"), txn_id=f"w{self.count}"), Committed)
            if self.count % 2 == 0:
                await self.awake.checkpoint()

    async def forget(self) -> None:
        """Clean up what is older than the retention."""
        assert (await self.awake.clean_up()).commits > 0

    async def kept(self) -> Counter[str]:
        """How often each transaction is in the part of the log that counts."""
        oldest = oldest_version(await self.awake.refresh())
        found: Counter[str] = Counter()
        for version in range(oldest, self.awake.current.version + 1):
            commit = REGISTRY.codec.decode(await self.store.read(Version(version)) or b"", Version(version), "log")
            found.update({operation.txn or commit.txn_id for operation in commit.operations})
        return found


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    made.awake = await made.open()
    await made.go_on(2)
    yield made
    for log in made.opened:
        await log.close()


async def test_sleeper_before_its_create_commits_once_in_the_present(world: World) -> None:
    log, store = await world.sleeper()
    past = log.current.version + 1

    async def sleep_first(create, *args):  # type: ignore[no-untyped-def]
        store.hooks.clear()
        await world.go_on(3)
        await world.forget()
        await create(*args)

    store.hooks["create"] = sleep_first
    result = await log.commit(put("mine", 1), txn_id="mine")
    assert isinstance(result, Committed)
    assert result.version > past + 20
    assert (await world.kept())["mine"] == 1
    assert await world.store.read(Version(past)) is not None  # it won a number of the past, and did not believe it
    newcomer = await world.open()
    assert newcomer.current.get("n").decode(int) == world.count  # type: ignore[union-attr]
    assert state_bytes(newcomer.current) == state_bytes(await log.refresh()) == state_bytes(await world.awake.refresh())
    found = await verify(world.store, REGISTRY)
    assert found.ok
    assert [finding.severity for finding in found.findings] == ["note"]
    await world.go_on(3)
    await world.forget()
    assert await world.store.read(Version(past)) is None


async def test_sleeper_that_noticed_before_trying_leaves_no_stray(world: World) -> None:
    log, _ = await world.sleeper()
    past = log.current.version + 1
    await world.go_on(3)
    await world.forget()
    assert isinstance(await log.commit(put("mine", 1), txn_id="mine"), Committed)
    assert await world.store.read(Version(past)) is None
    assert (await world.kept())["mine"] == 1


async def test_sleeper_after_its_create_is_acknowledged_for_what_it_won_and_does_not_redo_it(world: World) -> None:
    """Between the deleted numbers and the floor lie commits that are real."""
    log, store = await world.sleeper()

    async def sleep_after(create, *args):  # type: ignore[no-untyped-def]
        store.hooks.clear()
        await create(*args)
        await world.go_on(0.7)
        await world.forget()

    mine = log.current.version + 1
    store.hooks["create"] = sleep_after
    result = await log.commit(increment("n"), txn_id="mine")
    assert isinstance(result, Committed)
    assert result.version == mine
    assert (await world.kept())["mine"] == 1
    assert log.current.get("n").decode(int) == world.count + 1  # type: ignore[union-attr]


async def test_sleeper_after_its_create_past_all_evidence_is_told_unknown(world: World) -> None:
    log, store = await world.sleeper()

    async def sleep_after(create, *args):  # type: ignore[no-untyped-def]
        store.hooks.clear()
        await create(*args)
        await world.go_on(3)
        await world.forget()

    store.hooks["create"] = sleep_after
    assert isinstance(await log.commit(increment("n"), txn_id="mine"), Unknown)
    assert log.current.get("n").decode(int) == world.count + 1  # type: ignore[union-attr]
    assert isinstance(await log.commit(put("next", 1), txn_id="next"), Committed)


async def test_doubtful_number_of_the_past_is_given_up_and_the_log_goes_on(world: World) -> None:
    log, store = await world.sleeper()
    past = log.current.version + 1

    async def no_answer(create, *args):  # type: ignore[no-untyped-def]
        world.clock._monotonic_s += 10  # its time is up at once
        raise Ambiguous("no answer")

    store.hooks["create"] = no_answer
    assert isinstance(await log.commit(put("mine", 1), txn_id="mine"), Unknown)
    store.hooks.clear()
    await world.go_on(3)
    await world.forget()
    assert isinstance(await log.commit(put("next", 1), txn_id="next"), Committed)
    assert await world.store.read(Version(past)) is None
    assert (await world.kept())["mine"] == 0


async def test_reader_that_slept_reads_the_present(world: World) -> None:
    log, _ = await world.sleeper()
    await world.go_on(3)
    await world.forget()
    assert state_bytes(await log.refresh()) == state_bytes(world.awake.current)


async def test_stray_of_another_sleeper_is_not_believed(world: World) -> None:
    reader, _ = await world.sleeper()
    follower, _ = await world.sleeper()
    past = Version(reader.current.version + 1)
    stray = REGISTRY.codec.encode(_commit(past))
    await world.go_on(3)
    await world.forget()
    await world.store.create(past, stray)
    assert (await reader.refresh()).get("stray") is None
    assert isinstance(await reader.commit(put("mine", 1), txn_id="mine"), Committed)
    with pytest.raises(NotFound, match="cleaned up"):
        await anext(follower.changes(Version(past - 1)))
    newcomer = await world.open()
    assert newcomer.current.get("stray") is None
    assert (await newcomer.snapshot()).get("mine") is not None


async def test_follower_that_slept_between_looking_and_reading_does_not_believe_a_stray(world: World) -> None:
    log, store = await world.sleeper()
    at = log.current.version
    await world.awake.commit(put("seen", 1), txn_id="seen")
    await log.refresh()

    async def sleep_first(read_many, *args):  # type: ignore[no-untyped-def]
        store.hooks.clear()
        await world.go_on(3)
        await world.forget()
        await world.store.create(Version(at + 1), REGISTRY.codec.encode(_commit(at + 1)))
        return await read_many(*args)

    store.hooks["read_many"] = sleep_first
    with pytest.raises(NotFound):
        await anext(log.changes(at))


async def test_opener_that_slept_while_loading_opens_the_present(world: World) -> None:
    for call in ("get_document", "read_many", "versions"):
        store = Intercepted(object_store(world.objects, world.clock))

        async def sleep_first(real, *args, store=store):  # type: ignore[no-untyped-def]
            store.hooks.clear()
            found = await real(*args)
            await world.go_on(3)
            await world.forget()
            return found

        store.hooks[call] = sleep_first
        log = await world.open(store)
        assert state_bytes(log.current) == state_bytes(world.awake.current)


async def test_opener_overtaken_by_clean_up_starts_again(world: World) -> None:
    """Not long enough to be called sleep, but what it built on is gone."""
    store = Intercepted(object_store(world.objects, world.clock))

    async def slow(real, *args):  # type: ignore[no-untyped-def]
        store.hooks.clear()
        found = await real(*args)
        boot_s = world.clock._boot_s
        await world.go_on(3)
        await world.forget()
        world.clock._boot_s = boot_s
        return found

    store.hooks["get_document"] = slow
    await world.awake.commit(put("k", 1), txn_id="k")
    log = await world.open(store)
    assert state_bytes(log.current) == state_bytes(world.awake.current)


async def test_checkpoint_written_late_does_not_mislead_newcomers(world: World) -> None:
    log, store = await world.sleeper()
    old = log.current.version

    async def sleep_first(put_document, *args):  # type: ignore[no-untyped-def]
        store.hooks.clear()
        await world.go_on(3)
        await world.forget()
        await put_document(*args)

    store.hooks["put_document"] = sleep_first
    await log._housekeeping.checkpoint(log.current)
    assert f"{old:020d}.checkpoint.json" in await world.store.documents()
    newcomer = await world.open()
    assert state_bytes(newcomer.current) == state_bytes(world.awake.current)
    await world.store.delete_document(POINTER)
    newcomer = await world.open()
    assert state_bytes(newcomer.current) == state_bytes(world.awake.current)
    assert (await verify(world.store, REGISTRY)).ok


async def test_pointer_swapped_late_does_not_go_back(world: World) -> None:
    log, store = await world.sleeper()

    async def sleep_first(swap_document, *args):  # type: ignore[no-untyped-def]
        store.hooks.clear()
        await world.go_on(3)
        await swap_document(*args)

    await log.commit(put("k", 1), txn_id="k")
    store.hooks["swap_document"] = sleep_first
    await log.checkpoint()
    newest = max(name for name in await world.store.documents() if "checkpoint.json" in name)
    pointer, _ = await world.store.get_document(POINTER) or pytest.fail("no pointer")
    assert newest.encode() in pointer


async def test_creator_that_slept_does_not_make_a_second_log() -> None:
    clock = FakeClock()
    objects = MemoryStore(clock)
    store = Intercepted(object_store(objects, clock))
    world = World()
    world.clock, world.objects, world.store = clock, objects, object_store(objects, clock)

    async def sleep_first(create, *args):  # type: ignore[no-untyped-def]
        store.hooks.clear()
        world.awake = await world.open()
        await world.go_on(3)
        await world.forget()
        await create(*args)

    store.hooks["create"] = sleep_first
    log = await world.open(store)
    assert log.current.version == world.awake.current.version
    for each in world.opened:
        await each.close()


async def test_paused_lease_holder_cannot_commit(world: World) -> None:
    paused, heir = Leases(world.objects, world.clock, 10.0), Leases(world.objects, world.clock, 10.0)
    lease = await paused.acquire("settler", "paused")
    assert lease is not None
    await take_fence(world.awake, "settler", lease.token, "fence:1")

    def act(token: int, value: str):  # type: ignore[no-untyped-def]
        def decide(view: View) -> Decision[None]:
            check_fence(view, "settler", token)
            return Decision([Put.of("by", value)], None)

        return decide

    assert isinstance(await world.awake.commit(act(lease.token, "paused"), txn_id="p1"), Committed)
    other = await world.open()
    assert await heir.acquire("settler", "heir") is None
    await world.clock.jump(11)
    taken = await heir.acquire("settler", "heir")
    assert taken is not None
    await take_fence(other, "settler", taken.token, "fence:2")
    assert isinstance(await other.commit(act(taken.token, "heir"), txn_id="h1"), Committed)
    # The first one wakes on a snapshot of its own that still shows its token.
    assert not lease.alive()
    with pytest.raises(Fenced):
        await world.awake.commit(act(lease.token, "paused"), txn_id="p2")
    with pytest.raises(Fenced):
        await take_fence(world.awake, "settler", lease.token, "fence:3")
    with pytest.raises(Fenced):
        await paused.renew(lease)
    assert (await other.refresh()).get("by").decode(str) == "heir"  # type: ignore[union-attr]


async def test_two_who_clean_up_at_once_do_no_harm(world: World) -> None:
    other = await world.open()
    await world.go_on(3)
    results = await asyncio.gather(world.awake.clean_up(), other.clean_up())
    assert sum(result.commits for result in results) > 0
    assert (await verify(world.store, REGISTRY)).ok
    newcomer = await world.open()
    assert newcomer.current.get("n").decode(int) == world.count  # type: ignore[union-attr]


def _commit(version: int) -> Commit:
    return Commit(version, "2023-11-14T23:59:59.999Z", "stray", [Put.of("stray", 1)], False)
