"""The kernel against bare system calls and bare parsing."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import msgspec
import uvloop

from bench.report import Figure
from bench.scratch import scratch
from lakebed.clock import SystemClock
from lakebed.kernel import KERNEL_PARTS, Add, CommitLog, Decision, FileLogStore, Identity, Put, Registry, View
from lakebed.kernel.replay import load
from lakebed.objects import Disk, Files, LocalStore

PREFIX = "meta/domain=00/_delta_log"
STREAMS_PER_OBJECT = 10
BATCHES = "AAGAgAEKAAEAAAoAAAGYxw"


def run(quick: bool) -> list[Figure]:
    """All figures of this part."""
    return uvloop.run(_run(quick))


async def _run(quick: bool) -> list[Figure]:
    scale = 10 if quick else 1
    return [
        *await _commits(2000 // scale),
        await _cost_by_entries(1_000_000 // scale, 1500 // scale),
        *await _open(100_000),
        await _bytes_per_entry(1_000_000 // scale),
    ]


class _Unsynced(Disk):
    """A disk that does not wait, for making a log whose opening is to be measured."""

    def sync(self, fd: int) -> None:
        pass

    def sync_folder(self, folder: object) -> None:
        pass


async def _opened(folder: Path, disk: Disk | None = None) -> CommitLog:
    clock = SystemClock()
    folder.mkdir(exist_ok=True)
    store = FileLogStore(folder, PREFIX, LocalStore(folder, files=Files(folder, disk)), Files(folder, disk))
    return await CommitLog.open(
        store, Registry(KERNEL_PARTS), clock=clock, create=Identity(str(clock.uuid7()), "bench", "bench")
    )


async def _commits(count: int) -> list[Figure]:
    """Commits one after the other, and 128 waiting at once, in turns with the system calls they cannot do without."""
    sequential, grouped, bare = [], [], []
    with scratch() as folder:
        log = await _opened(folder / "log")
        (folder / "bare").mkdir()
        for turn in range(5):
            bare.append(_bare_syscalls(folder / "bare", turn * count, count // 5))
            sequential.append(await _sequential(log, f"{turn}", count // 5))
            grouped.append(await _grouped(log, f"{turn}", 128, 60))
        await log.close()
    floor, one, many = map(statistics.median, (bare, sequential, grouped))
    return [
        Figure(
            "sequential_commits_vs_bare_syscalls",
            one / floor,
            f"{one:.0f}/s against {floor:.0f}/s of open, write, fsync, link, fsync",
            0.6,
        ),
        Figure("grouped_commits_vs_sequential", many / one, f"{many:.0f} transactions/s with 128 waiting", 25),
    ]


def _bare_syscalls(folder: Path, first: int, count: int) -> float:
    """Files a second, with the system calls of a durable create-if-absent and nothing else."""
    body = b"x" * 200
    where = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    began_s = time.perf_counter()
    for number in range(first, first + count):
        fd = os.open(".", os.O_WRONLY | os.O_TMPFILE, 0o644, dir_fd=where)
        os.write(fd, body)
        os.fsync(fd)
        os.link(f"/proc/self/fd/{fd}", f"{number:020d}.json", dst_dir_fd=where, follow_symlinks=True)
        os.close(fd)
        os.fsync(where)
    elapsed_s = time.perf_counter() - began_s
    os.close(where)
    return count / elapsed_s


def _put(key: str, value: int) -> Callable[[View], Decision[None]]:
    return lambda _: Decision([Put.of(key, value)], None)


async def _sequential(log: CommitLog, name: str, count: int) -> float:
    began_s = time.perf_counter()
    for number in range(count):
        await log.commit(_put(f"key/{number % 100}", number), txn_id=f"s{name}:{number}")
    return count / (time.perf_counter() - began_s)


async def _grouped(log: CommitLog, name: str, waiting: int, rounds: int) -> float:
    async def client(number: int) -> None:
        for turn in range(rounds):
            await log.commit(_put(f"key/{number}", turn), txn_id=f"g{name}:{number}:{turn}")

    began_s = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(waiting)))
    return waiting * rounds / (time.perf_counter() - began_s)


async def _cost_by_entries(large: int, count: int) -> Figure:
    """What a commit costs on a large index against a small one, checkpoints included."""
    with scratch() as folder:
        small_log, large_log = await _opened(folder / "small"), await _opened(folder / "large")
        await _fill(small_log, 1000)
        await _fill(large_log, large)
        gc.collect()
        ratios = []
        for turn in range(5):
            on_large = await _append(large_log, turn, count)
            ratios.append(on_large / await _append(small_log, turn, count))
        await asyncio.gather(small_log.close(), large_log.close())
    return Figure(
        "commit_cost_1m_vs_1k_entries",
        statistics.median(ratios),
        f"{large} against 1000 index entries",
        1.3,
        at_least=False,
    )


async def _fill(log: CommitLog, entries: int) -> None:
    """Entries as a broker makes them: objects that hold ten streams each, several objects a commit."""
    per_commit = 5000
    for first in range(0, entries, per_commit):
        await _add(log, f"fill:{first}", first // STREAMS_PER_OBJECT, min(per_commit, entries - first))


async def _add(log: CommitLog, txn_id: str, first_object: int, entries: int) -> None:
    def decide(_: object) -> Decision[None]:
        operations = []
        for number in range(entries):
            turn, stream = divmod(number, STREAMS_PER_OBJECT)
            operations.append(_entry(stream, first_object + turn))
        return Decision(operations, None)

    await log.commit(decide, txn_id=txn_id)


def _entry(stream: int, number: int) -> Add:
    """Entry `number` of a stream; sizes, counts and times vary as they do in life."""
    offset_start, offset_end = (number * 10 + _wobble(number, 8), (number + 1) * 10 + _wobble(number + 1, 8))
    moment = 1_763_187_631_000 + number * 7 + _wobble(number, 5)
    size = 900 + _wobble(number + stream, 400)
    return Add(
        stream=stream,
        offset_start=offset_start,
        offset_end=offset_end,
        segment=f"wal/v1/zone=a/domain=00/date=2026/11/15/{number:032x}.wo",
        position=49 + 48 * STREAMS_PER_OBJECT + stream * 1064 + _wobble(number, 300),
        size=size,
        cumulative_size=number * 1064 + _wobble(number, 100),
        timestamp_min=moment,
        timestamp_max=moment + _wobble(number, 9),
        batches=f"{BATCHES[:-4]}{_wobble(number, 9000):04d}",
    )


def _wobble(number: int, below: int) -> int:
    """Something irregular in [0, below) that is the same every time."""
    return (number * 2_654_435_761 >> 7) % below


async def _append(log: CommitLog, turn: int, count: int) -> float:
    """Seconds for `count` commits of one entry each."""
    began_s = time.perf_counter()
    for number in range(count):
        stream = log.current.stream(0)
        assert stream is not None
        entry = _entry(0, stream.count)
        await log.commit(lambda _, entry=entry: Decision([entry], None), txn_id=f"append:{turn}:{number}")
    return time.perf_counter() - began_s


async def _open(commits: int) -> list[Figure]:
    """Opening a log of many commits, against only parsing the bytes that this reads."""
    with scratch() as folder:
        log = await _opened(folder, _Unsynced())
        for first in range(0, commits, 2000):
            await _one_by_one(log, first, min(2000, commits - first))
        await log.close()
        times_s, floors_s, strict_floors_s, read = [], [], [], 0
        for _ in range(5):
            store = _Recorder(FileLogStore(folder, PREFIX, LocalStore(folder)))
            began_s = time.perf_counter()
            loaded = await load(store, Registry(KERNEL_PARTS))
            times_s.append(time.perf_counter() - began_s)
            assert loaded is not None
            read = loaded.objects_read
            await store.close()
            floors_s.append(_parse(store.bodies, json.loads))
            strict_floors_s.append(_parse(store.bodies, msgspec.json.decode))
    took_s, strict_s, floor_s = (statistics.median(times) for times in (times_s, strict_floors_s, floors_s))
    size_mb = sum(map(len, store.bodies)) / 1e6
    return [
        Figure(
            "open_100k_commits_vs_parse_floor",
            took_s / floor_s,
            f"{took_s:.3f} s against {floor_s:.3f} s of json.loads on the same {size_mb:.1f} MB",
            2,
            at_least=False,
        ),
        Figure(
            "open_100k_commits_vs_msgspec", took_s / strict_s, f"against {strict_s:.3f} s of msgspec on the same bytes"
        ),
        Figure("open_100k_commits_objects_read", read, f"objects read to open {commits} commits", 500, at_least=False),
    ]


async def _one_by_one(log: CommitLog, first: int, count: int) -> None:
    """One commit a transaction."""
    for number in range(first, first + count):
        await log.commit(
            lambda _, number=number: Decision([_entry(number % 10, number // 10)], None), txn_id=f"open:{number}"
        )


class _Recorder:
    """A log store that keeps what was read from another."""

    def __init__(self, inner: FileLogStore) -> None:
        self._inner = inner
        self.bodies: list[bytes] = []

    async def read_many(self, first: int, count: int) -> list[bytes]:
        found = await self._inner.read_many(first, count)
        self.bodies += found
        return found

    async def get_document(self, name: str) -> tuple[bytes, str] | None:
        found = await self._inner.get_document(name)
        if found:
            self.bodies.append(found[0])
        return found

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def _parse(bodies: list[bytes], parse: Callable[[bytes], object]) -> float:
    """Seconds to parse every JSON document in `bodies`, line by line, into plain values."""
    began_s = time.perf_counter()
    for body in bodies:
        for line in body.split(b"\n"):
            parse(line)
    return time.perf_counter() - began_s


async def _bytes_per_entry(entries: int) -> Figure:
    with scratch() as folder:
        log = await _opened(folder)
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        await _fill(log, entries)
        snapshot = log.current
        await log.close()  # so that no checkpoint is being written while memory is counted
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert snapshot.version > 0
    per_entry = (after - before) / entries
    return Figure(
        "bytes_per_index_entry",
        per_entry,
        f"{entries} entries, {STREAMS_PER_OBJECT} streams to an object",
        120,
        at_least=False,
    )
