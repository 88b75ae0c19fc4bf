"""Topics across two logs: every step may be the last one a process makes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lakebed.errors import Conflict, Exists, Invalid, NotFound, Unavailable
from lakebed.kernel import CommitLog, CommitResult, Decision, View
from lakebed.objects import MemoryStore
from lakebed.streams import Catalogue, TopicAdmin, TopicRecord, domain_of, stream_key
from lakebed.streams.keys import OPENING, PURGE, TOPIC_DELETING, behind
from lakebed.wal import Verdict
from tests.unit.streams.plane import Plane, batch, fake_clock, memory_plane


class Killed(BaseException):
    """The process ends here."""


class Mortal:
    """A log through which only so many commits go before the process ends, before or after the fatal one."""

    def __init__(self, log: CommitLog, lives: list[int], after: bool) -> None:
        self._log = log
        self._lives = lives
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def commit(self, decide: Callable[[View], Decision[Any]], *, txn_id: str) -> CommitResult[Any]:
        self._lives[0] -= 1
        if self._lives[0] < 0 and not self._after:
            raise Killed
        result = await self._log.commit(decide, txn_id=txn_id)
        if self._lives[0] < 0:
            raise Killed
        return result


def mortal_admin(plane: Plane, commits: int, after: bool) -> TopicAdmin:
    lives = [commits]
    cluster: Any = Mortal(plane.cluster, lives, after)
    domains: list[Any] = [Mortal(domain.log, lives, after) for domain in plane.domains]
    return TopicAdmin(cluster, domains, plane.clock)


def leftovers(plane: Plane) -> list[str]:
    snapshots = [plane.cluster.current, *(domain.log.current for domain in plane.domains)]
    return [
        key
        for snapshot in snapshots
        for prefix in (OPENING, PURGE, TOPIC_DELETING)
        for key, _ in snapshot.scan(prefix, behind(prefix))
    ]


def open_streams(plane: Plane) -> set[int]:
    keys = [key for domain in plane.domains for key, _ in domain.log.current.scan("stream/", "stream0")]
    return {int(key.removeprefix("stream/"), 16) for key in keys}


def topics(plane: Plane) -> dict[str, TopicRecord]:
    return {name: topic.record for name, topic in Catalogue().at(plane.cluster.current).by_name.items()}


async def test_created_topic_is_found_by_name_and_id() -> None:
    async with memory_plane(domains=3) as plane:
        record = await plane.topic("orders", 3, retention_ms="1000")
        catalogue = Catalogue().at(plane.cluster.current)
        assert catalogue.by_name["orders"].record == catalogue.by_id[record.id].record == record
        assert record.domain == domain_of(record.id, 3)
        assert catalogue.by_name["orders"].rules.keep.retention_ms == 1000
        assert open_streams(plane) == set(record.streams)
        assert leftovers(plane) == []


async def test_name_is_given_once_however_many_ask() -> None:
    store = MemoryStore()
    async with memory_plane(store) as one, memory_plane(store) as two:
        creations = [plane.topic("orders", 2) for plane in (one, two) for _ in range(4)]
        results = await asyncio.gather(*creations, return_exceptions=True)
        winners = [result for result in results if isinstance(result, TopicRecord)]
        assert len(winners) == 1
        assert sum(isinstance(result, Exists) for result in results) == 7
        await one.domain.log.refresh()
        assert open_streams(one) == set(winners[0].streams)
        assert leftovers(one) == []


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "x" * 250, "a/b"])
async def test_impossible_names_are_refused(name: str) -> None:
    async with memory_plane() as plane:
        with pytest.raises(Invalid):
            await plane.topic(name)


async def test_validate_only_leaves_no_trace() -> None:
    async with memory_plane() as plane:
        await plane.admin.create("orders", 2, validate_only=True)
        assert topics(plane) == {}
        assert open_streams(plane) == set()
        await plane.topic()
        await plane.admin.extend("orders", 5, validate_only=True)
        await plane.admin.configure("orders", lambda _: {"retention.ms": "5"}, validate_only=True)
        assert len(topics(plane)["orders"].streams) == 1
        assert topics(plane)["orders"].config == {}


async def test_extension_keeps_the_streams_there_are() -> None:
    async with memory_plane() as plane:
        record = await plane.topic(partitions=2)
        longer = await plane.admin.extend("orders", 5)
        assert longer.streams[:2] == record.streams
        assert len(set(longer.streams)) == 5
        for count in (5, 1, 0, 20_000):
            with pytest.raises(Invalid):
                await plane.admin.extend("orders", count)
        with pytest.raises(NotFound):
            await plane.admin.extend("nothing", 5)


async def test_one_of_two_racing_extensions_wins() -> None:
    store = MemoryStore()
    async with memory_plane(store) as one, memory_plane(store) as two:
        await one.topic()
        results = await asyncio.gather(
            one.admin.extend("orders", 3), two.admin.extend("orders", 4), return_exceptions=True
        )
        assert sum(isinstance(result, TopicRecord) for result in results) == 1
        assert sum(isinstance(result, Conflict) for result in results) == 1
        await one.cluster.refresh()
        await one.domain.log.refresh()
        assert open_streams(one) == set(topics(one)["orders"].streams)


async def test_configs_are_changed_and_checked() -> None:
    async with memory_plane() as plane:
        await plane.topic(retention_ms="1000")
        await plane.admin.configure("orders", lambda old: {**old, "retention.bytes": "5"})
        assert topics(plane)["orders"].config == {"retention.ms": "1000", "retention.bytes": "5"}
        for bad in ({"retention.ms": "soon"}, {"unheard.of": "1"}):
            with pytest.raises(Invalid):
                await plane.admin.configure("orders", lambda old, bad=bad: {**old, **bad})  # type: ignore[misc]
        with pytest.raises(NotFound):
            await plane.admin.configure("nothing", lambda old: old)


async def test_deleted_topic_is_purged_and_can_be_created_again() -> None:
    clock = fake_clock()
    async with memory_plane(clock=clock) as plane:
        old = await plane.topic(partitions=2)
        await plane.send(old.streams[0], batch(b"a", producer=1), batch(b"b"))
        await plane.admin.delete("orders")
        fresh = await plane.topic()
        assert not set(fresh.streams) & set(old.streams)
        await plane.sweeper.finish_topics()
        assert leftovers(plane) == []
        assert list(plane.domain.log.current.streams()) == []
        assert await plane.read_all(fresh.streams[0]) == []
        await clock.jump(61)
        assert await plane.domain.collector.collect_released() == 1
        with pytest.raises(NotFound):
            await plane.admin.delete("gone")


async def test_deletion_by_a_wrong_id_is_refused() -> None:
    async with memory_plane() as plane:
        await plane.topic()
        with pytest.raises(NotFound):
            await plane.admin.delete("orders", expected_id=plane.clock.uuid7())


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("commits", range(3))
async def test_creation_cut_short_anywhere_is_finished_or_undone(commits: int, after: bool) -> None:
    clock = fake_clock()
    async with memory_plane(clock=clock, domains=2) as plane:
        with pytest.raises(Killed):
            await mortal_admin(plane, commits, after).create("orders", 3)
        await clock.jump(601)
        await plane.sweeper.finish_topics()
        assert leftovers(plane) == []
        named = {stream for record in topics(plane).values() for stream in record.streams}
        assert open_streams(plane) == named
        if not named:
            await plane.topic("orders", 1)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("commits", range(3))
async def test_extension_cut_short_anywhere_is_finished_or_undone(commits: int, after: bool) -> None:
    clock = fake_clock()
    async with memory_plane(clock=clock) as plane:
        await plane.topic()
        with pytest.raises(Killed):
            await mortal_admin(plane, commits, after).extend("orders", 4)
        await clock.jump(601)
        await plane.sweeper.finish_topics()
        assert leftovers(plane) == []
        assert open_streams(plane) == set(topics(plane)["orders"].streams)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("commits", range(4))
async def test_deletion_cut_short_anywhere_is_finished(commits: int, after: bool) -> None:
    async with memory_plane() as plane:
        record = await plane.topic()
        await plane.send(record.streams[0], batch(b"a"))
        admin = mortal_admin(plane, commits, after)
        with pytest.raises(Killed):
            await admin.finish_deletion(await admin.delete("orders"))
        if commits == 0 and not after:
            await plane.admin.delete("orders")
        await plane.sweeper.finish_topics()
        assert leftovers(plane) == []
        assert open_streams(plane) == set()
        assert (await plane.send(record.streams[0], batch(b"b")))[0].verdict is Verdict.NO_STREAM


async def test_creator_that_slept_past_the_sweeper_is_refused() -> None:
    clock = fake_clock()
    async with memory_plane(clock=clock) as plane:
        admin = plane.admin
        opened = asyncio.Event()
        go_on = asyncio.Event()
        inner = admin._commit

        async def slow(txn_id: str, decide: Callable[[View], Decision[Any]]) -> Any:
            opened.set()
            await go_on.wait()
            return await inner(txn_id, decide)

        sleeper = TopicAdmin(plane.cluster, [plane.domain.log], clock)
        sleeper._commit = slow  # type: ignore[method-assign, assignment]
        creation = asyncio.ensure_future(sleeper.create("orders", 1))
        await opened.wait()
        await clock.jump(601)
        await plane.sweeper.finish_topics()
        go_on.set()
        with pytest.raises(Unavailable):
            await creation
        assert topics(plane) == {}
        assert open_streams(plane) == set()


async def test_extended_topic_that_was_deleted_leaves_nothing() -> None:
    clock = fake_clock()
    async with memory_plane(clock=clock) as plane:
        await plane.topic()
        with pytest.raises(Killed):
            await mortal_admin(plane, 2, False).extend("orders", 4)
        await plane.admin.delete("orders")
        await plane.sweeper.finish_topics()
        await clock.jump(601)
        await plane.sweeper.finish_topics()
        assert leftovers(plane) == []
        assert open_streams(plane) == set()


def test_stream_keys_sort_like_their_numbers() -> None:
    keys = [stream_key(number) for number in (1, 255, 256, 70_000, 1 << 40)]
    assert keys == sorted(keys)
