"""Damage, bad batches, data that leaves while it is settled, rivals and a catalog that is down: each ends right."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lakebed.config import ByteCount, LeaseSettings, Seconds, SettleSettings, TablesSettings
from lakebed.errors import Corrupt, Fenced, Unavailable
from lakebed.pipeline import Event, HereRunner, Rounds
from lakebed.records import Codec, Record, build_batch, read_header
from lakebed.records.batch import HEADER_BYTES, seal
from lakebed.streams import JobState, TopicAdmin
from lakebed.tables import Change, Job, TableCommit, TableFormat, TableRef, dead_letters_of
from tests.unit.pipeline.settle_world import FIRST_MS, KilledAt, SettleWorld, settle_world


def undecodable(*values: bytes) -> bytes:
    """A batch whose checksum is right and whose records are not what it says they are."""
    whole = build_batch([Record(at, FIRST_MS, None, value) for at, value in enumerate(values)])
    header = read_header(whole)
    body = whole[HEADER_BYTES:]
    return b"".join((seal(header._replace(attributes=Codec.GZIP), body), body))


class Meanwhile(HereRunner):
    """Something else happens before or after the files are written."""

    def __init__(
        self,
        before: Callable[[], Awaitable[object]] | None = None,
        after: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._before, self._after = before, after

    async def run(self, orders: Sequence[bytes]) -> list[bytes]:
        if self._before:
            await self._before()
        outcomes = await super().run(orders)
        if self._after:
            await self._after()
        return outcomes


class Down:
    """A table format that cannot be reached until it is up."""

    def __init__(self, side: TableFormat) -> None:
        self._side, self.up = side, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._side, name)

    async def commit(self, ref: TableRef, job: Job, change: Change) -> TableCommit:
        if not self.up:
            raise Unavailable("the catalog is down", "Start it")
        return await self._side.commit(ref, job, change)


def flip(world: SettleWorld, path: str, position: int) -> None:
    target = Path(world.root.settings.root) / path
    body = bytearray(target.read_bytes())
    body[position] ^= 0x10
    target.write_bytes(body)


async def test_flipped_bits_stop_their_partition_and_no_other(tmp_path: Path) -> None:
    async with settle_world(tmp_path / "root") as world:
        topic = await world.topic(partitions=2)
        await world.send(topic, 0, b"a", b"b")
        await world.send(topic, 0, b"c")
        await world.send(topic, 1, b"sound")
        before = await world.index(topic)
        bad = before[1]
        flip(world, bad.segment, bad.position + bad.size - 1)
        told = KilledAt()
        with pytest.raises(Corrupt) as error:
            await world.settle_all(told)
        assert bad.segment in str(error.value)
        assert f"chunk at byte {bad.position}" in str(error.value)
        assert await world.index(topic) == before
        assert await world.rows(topic) == [(1, 0, b"sound")]
        assert [event.topic for event in told.events if event.event == "corrupt"] == ["orders"]


async def test_a_corrupt_partition_does_not_keep_a_settler_busy(tmp_path: Path) -> None:
    async with settle_world(tmp_path / "root") as world:
        topic = await world.topic()
        await world.send(topic, 0, b"a")
        (entry,) = await world.index(topic)
        flip(world, entry.segment, entry.position + entry.size - 1)
        jobs: list[Event] = []
        stop = asyncio.Event()

        def tell(event: Event) -> None:
            if event.event == "job":
                jobs.append(event)
            if event.event == "corrupt":
                asyncio.get_running_loop().call_later(0.5, stop.set)

        await Rounds(world.root, lambda: world.settler(tell), tell, stop=stop).forever(0.05)
        assert len(jobs) == 1


async def test_an_undecodable_batch_is_kept_where_it_lies_and_told_of(tmp_path: Path) -> None:
    async with settle_world(tmp_path / "root") as world:
        topic = await world.topic()
        await world.send(topic, 0, b"before")
        await world.send_batch(topic, 0, undecodable(b"x", b"y"))
        await world.send(topic, 0, b"behind")
        bad = (await world.index(topic))[1]
        await world.settle_all()
        assert await world.rows(topic) == [(0, 0, b"before"), (0, 3, b"behind")]
        index = await world.index(topic)
        assert [(e.file_type, e.offset_start, e.offset_end) for e in index] == [
            ("parquet", 0, 1),
            ("quarantine", 1, 3),
            ("parquet", 3, 4),
        ]
        assert index[1][2:5] == bad[2:5]
        assert [entry.cumulative_size for entry in index] == sorted(entry.cumulative_size for entry in index)
        snapshot = await world.snapshot()
        assert not snapshot.released_ms(bad.segment)
        letters = dead_letters_of(TableRef(topic.name, topic.id))
        tables = world.open_tables()
        assert len(await tables.iceberg.files(letters)) == 1
        assert await tables.iceberg.files(letters) == await tables.delta.files(letters)
        await world.settle_all()
        assert await world.index(topic) == index


async def test_bad_and_good_batches_of_one_object_are_told_apart(tmp_path: Path) -> None:
    async with settle_world(tmp_path / "root") as world:
        topic = await world.topic()
        good = build_batch([Record(0, FIRST_MS, None, b"good")])
        await world.send_batch(topic, 0, good + undecodable(b"x") + undecodable(b"y") + good)
        await world.settle_all()
        assert await world.rows(topic) == [(0, 0, b"good"), (0, 3, b"good")]
        index = await world.index(topic)
        assert [entry.file_type for entry in index] == ["parquet", "quarantine", "quarantine", "parquet"]
        sizes = [entry.cumulative_size for entry in index]
        assert sizes == sorted(set(sizes))


async def test_a_partition_without_rows_is_kept_and_not_looked_at_again(tmp_path: Path) -> None:
    async with settle_world(tmp_path / "root") as world:
        topic = await world.topic()
        await world.send_batch(topic, 0, undecodable(b"x"))
        await world.settle_all()
        assert [entry.file_type for entry in await world.index(topic)] == ["quarantine"]
        told = KilledAt()
        await world.settle_all(told)
        assert told.events == []


@pytest.mark.parametrize(("until", "left"), [(1, [(1, 4)]), (3, [(3, 4)]), (4, [])])
async def test_records_deleted_while_they_are_settled_stay_deleted(
    tmp_path: Path, until: int, left: list[tuple[int, int]]
) -> None:
    async with settle_world(tmp_path / "root") as world:
        topic = await world.topic()
        for number in range(4):
            await world.send(topic, 0, b"%d" % number)

        async def delete() -> None:
            await world.domains[0].delete_records(topic.streams[0], until)

        await world.settler(runner=Meanwhile(after=delete)).settle(topic)
        assert [(e.offset_start, e.offset_end) for e in await world.index(topic)] == left
        assert await world.rows(topic) == [(0, number, b"%d" % number) for number in range(4)]
        await world.send(topic, 0, b"more")
        await world.settle_all()
        assert [row[1] for row in await world.rows(topic)] == [0, 1, 2, 3, 4]


async def test_objects_that_retention_took_are_no_damage(tmp_path: Path) -> None:
    async with settle_world(tmp_path / "root") as world:
        topic = await world.topic()
        await world.send(topic, 0, b"gone")
        await world.send(topic, 0, b"stays")
        first = (await world.index(topic))[0]

        async def retire() -> None:
            await world.domains[0].delete_records(topic.streams[0], 1)
            await world.store.delete(first.segment)

        assert not (await world.settler(runner=Meanwhile(before=retire)).settle(topic)).corrupt
        await world.settle_all()
        assert await world.rows(topic) == [(0, 1, b"stays")]


async def test_an_object_that_is_missing_is_damage(tmp_path: Path) -> None:
    async with settle_world(tmp_path / "root") as world:
        topic = await world.topic()
        await world.send(topic, 0, b"lost")
        (entry,) = await world.index(topic)
        await world.store.delete(entry.segment)
        with pytest.raises(Corrupt, match="is not there"):
            await world.settle_all()


async def test_a_topic_deleted_while_it_is_settled_ends_its_job(tmp_path: Path) -> None:
    async with settle_world(tmp_path / "root") as world:
        topic = await world.topic()
        await world.send(topic, 0, b"a")
        admin = TopicAdmin(world.root.cluster, world.root.domains, world.root.clock)

        async def delete() -> None:
            await admin.finish_deletion(await admin.delete(topic.name))

        await world.settler(runner=Meanwhile(after=delete)).settle(topic)
        record = await world.job(topic)
        assert record is None or record.state is JobState.DONE
        assert await world.index(topic) == []
        assert (await world.settler().settle(topic)).jobs == 0


async def test_a_catalog_that_is_down_stops_the_job_and_nothing_else(tmp_path: Path) -> None:
    async with settle_world(tmp_path / "root") as world:
        topic = await world.topic()
        await world.send(topic, 0, b"a")
        tables = world.open_tables()
        down = Down(tables.iceberg)
        tables.iceberg = down  # type: ignore[assignment]
        settler = world.settler(tables=tables)
        with pytest.raises(Unavailable):
            await settler.settle(topic)
        assert [entry.file_type for entry in await world.index(topic)] == ["wal"]
        assert await world.send(topic, 0, b"b") == 1
        with pytest.raises(Unavailable):
            await settler.settle(topic)
        record = await world.job(topic)
        assert record is not None
        assert record.state is JobState.PARQUET_WRITTEN
        down.up = True
        await settler.settle(topic)
        await world.assert_settled(topic, [(0, 0, b"a"), (0, 1, b"b")])


async def test_one_topic_in_trouble_does_not_keep_others_waiting(tmp_path: Path) -> None:
    async with settle_world(tmp_path / "root") as world:
        bad, good = await world.topic("bad"), await world.topic("good")
        await world.send(bad, 0, b"a")
        (entry,) = await world.index(bad)
        await world.send(good, 0, b"b")
        flip(world, entry.segment, entry.position + 20)
        with pytest.raises(Corrupt):
            await world.settle_all()
        await world.assert_settled(good, [(0, 0, b"b")])


async def test_two_settlers_at_once_settle_everything_once(tmp_path: Path) -> None:
    async with settle_world(tmp_path / "root") as one, settle_world(tmp_path / "root") as other:
        topic = await one.topic(partitions=2)
        expected = []
        for number in range(10):
            partition = number % 2
            expected.append((partition, await one.send(topic, partition, b"%d" % number), b"%d" % number))
            if number % 3 == 0:
                await asyncio.gather(one.settle_all(), other.settle_all())
        await asyncio.gather(one.settle_all(), other.settle_all())
        await one.assert_settled(topic, expected)


async def test_a_settler_that_slept_is_fenced_and_its_files_are_nobodys(tmp_path: Path) -> None:
    short = LeaseSettings(ttl_s=Seconds(0.5))
    async with settle_world(tmp_path / "root", leases=short) as world:
        topic = await world.topic()
        await world.send(topic, 0, b"a")

        async def sleep_through() -> None:
            rival = threading.Thread(target=lambda: asyncio.run(_settle(tmp_path / "root", short)))
            rival.start()
            rival.join()  # this loop stands still, and no lease is renewed

        with pytest.raises(Fenced):
            await world.settler(runner=Meanwhile(after=sleep_through)).settle(topic)
        await world.assert_settled(topic, [(0, 0, b"a")])
        assert (await world.job(topic)).sequence == 2  # type: ignore[union-attr]


async def _settle(root: Path, leases: LeaseSettings) -> None:
    async with settle_world(root, leases=leases) as world:
        await world.settle_all()


async def test_once_waits_for_the_job_of_another(tmp_path: Path) -> None:
    async with settle_world(tmp_path / "root") as one, settle_world(tmp_path / "root") as other:
        topic = await one.topic()
        await one.send(topic, 0, b"a")
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            begun.set()
            await go_on.wait()

        slow = asyncio.create_task(one.settler(runner=Meanwhile(before=hold)).settle(topic))
        await begun.wait()
        await one.send(topic, 0, b"b")
        once = asyncio.create_task(other.settle_all())
        await asyncio.sleep(0)
        assert not once.done()
        go_on.set()
        await once
        await slow
        await one.assert_settled(topic, [(0, 0, b"a"), (0, 1, b"b")])


async def test_once_gives_up_when_another_never_ends(tmp_path: Path) -> None:
    patient = SettleSettings(patience_s=Seconds(1))
    async with settle_world(tmp_path / "root", settle=patient) as world:
        topic = await world.topic()
        await world.send(topic, 0, b"a")
        lease = await world.root.leases.acquire(f"settle/{topic.id}", "someone")
        assert lease is not None
        renewing = asyncio.create_task(world.root.leases.keep(lease))
        with pytest.raises(Unavailable, match="another settler"):
            await world.settle_all()
        renewing.cancel()


async def test_days_are_kept_apart_where_tables_want_that(tmp_path: Path) -> None:
    async with settle_world(tmp_path / "root", tables=TablesSettings(by_day=True)) as world:
        topic = await world.topic()
        noon = FIRST_MS - FIRST_MS % 86_400_000 + 43_200_000
        for day in (0, 0, 1, 2, 2):
            await world.send(topic, 0, b"%d" % day, timestamp_ms=noon + day * 86_400_000)
        await world.settle_all()
        assert [(e.offset_start, e.offset_end) for e in await world.index(topic)] == [(0, 2), (2, 3), (3, 5)]
        assert len(await world.rows(topic)) == 5


async def test_an_empty_root_needs_no_settler(tmp_path: Path) -> None:
    async with settle_world(tmp_path / "root") as world:
        await world.topic()
        await Rounds(world.root, lambda: pytest.fail("nothing is due"), lambda event: None).once()


async def test_a_file_that_outgrows_its_plan_is_followed_by_another(tmp_path: Path) -> None:
    small = SettleSettings(target_file_bytes=ByteCount(1_000_000), row_group_bytes=ByteCount(100_000))
    async with settle_world(tmp_path / "root", settle=small) as world:
        topic = await world.topic()
        chance = Random(7)
        values = [chance.randbytes(100_000) for _ in range(40)]
        for value in values:
            await world.send(topic, 0, value)
        await world.settle_all()
        entries = await world.index(topic)
        assert [entry.size // 500_000 for entry in entries] == [3, 3, 2]
        assert [entry.offset_start for entry in entries[1:]] == [entry.offset_end for entry in entries[:-1]]
        assert entries[0].cumulative_size < entries[1].cumulative_size < entries[2].cumulative_size
        await world.assert_settled(topic, [(0, at, value) for at, value in enumerate(values)])
