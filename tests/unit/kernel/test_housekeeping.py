"""Checkpoints and bundles: written when they pay, read when they help, passed over and healed when they are damaged."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from lakebed.errors import Unavailable
from lakebed.kernel import Add, CommitLog, Committed, Decision, FileLogStore, Put, View, verify
from lakebed.kernel.bundle import bundle_name
from lakebed.kernel.checkpoint import POINTER, Pointer, checkpoint_version
from lakebed.kernel.replay import load
from tests.intercepted import Intercepted
from tests.logs import (
    REGISTRY,
    all_commits,
    file_store,
    increment,
    object_store,
    open_log,
    put,
    replayed,
    state_bytes,
)


async def fill(log: CommitLog, count: int, tag: str = "t", size: int = 10) -> None:
    for number in range(count):
        result = await log.commit(put(f"{tag}{number % 40}", "x" * size), txn_id=f"{tag}{number}")
        assert isinstance(result, Committed)
        await asyncio.sleep(0)  # housekeeping has its turn


async def checkpoints(store: FileLogStore) -> list[int]:
    return sorted(v for name in await store.documents() if (v := checkpoint_version(name)) is not None)


async def test_first_checkpoints_come_every_ten_commits(tmp_path: Path) -> None:
    log = await open_log(file_store(tmp_path))
    await fill(log, 45, size=100)
    await log.close()
    found = await checkpoints(file_store(tmp_path))
    assert found[0] == 10
    assert len(found) >= 2
    hints = [commit.version for commit in await all_commits(file_store(tmp_path)) if commit.checkpoint_hint]
    assert hints == found


@pytest.mark.parametrize("workload", ["counter", "growing keys", "streams", "large values"])
@pytest.mark.parametrize("compression", ["none", "zstd"])
async def test_checkpoints_never_cost_more_bytes_than_commits(tmp_path: Path, workload: str, compression: str) -> None:
    def decide(number: int):  # type: ignore[no-untyped-def]
        def add(view: View) -> Decision[None]:
            stream = view.stream(number % 7)
            start = stream.end if stream else 0
            segment = f"wal/v1/zone=a/domain=00/date=2026/11/15/{number // 4:032d}.wo"
            return Decision(
                [
                    Add(
                        stream=number % 7,
                        offset_start=start,
                        offset_end=start + 9,
                        segment=segment,
                        size=999,
                        batches="YWJjZGVm" * 4,
                    )
                ],
                None,
            )

        return {
            "counter": increment("n"),
            "growing keys": put(f"some/key/{number}", number),
            "streams": add,
            "large values": put(f"k{number % 3}", "v" * 5000),
        }[workload]

    log = await open_log(file_store(tmp_path), checkpoint_compression=compression)
    for number in range(400):
        await log.commit(decide(number), txn_id=f"t{number}")
    await log.close()
    store = file_store(tmp_path)
    folder = Path(store.name)
    written = sum(path.stat().st_size for path in folder.glob("*.checkpoint.json*"))
    committed = sum(path.stat().st_size for path in folder.glob("?" * 20 + ".json"))
    assert len(await checkpoints(store)) >= 2
    assert written <= committed


async def test_opening_reads_the_newest_checkpoint_and_only_what_follows(tmp_path: Path) -> None:
    log = await open_log(file_store(tmp_path))
    await fill(log, 60)
    await log.checkpoint()
    await fill(log, 3, "tail")
    await log.close()
    loaded = await load(file_store(tmp_path), REGISTRY)
    assert loaded is not None
    assert loaded.objects_read <= 2 + 3 + 10
    assert state_bytes(loaded.snapshot) == state_bytes(await replayed(file_store(tmp_path)))


async def test_every_256_commits_are_bundled_and_opening_reads_the_bundles(tmp_path: Path) -> None:
    log = await open_log(file_store(tmp_path), checkpoint_every=10_000)
    await fill(log, 800)
    await log.close()
    store = file_store(tmp_path)
    bundles = [name for name in await store.documents() if "bundle" in name]
    assert bundles == [bundle_name(0), bundle_name(256), bundle_name(512)]
    loaded = await load(store, REGISTRY)
    assert loaded is not None
    assert loaded.objects_read <= 3 + (801 - 768)
    assert state_bytes(loaded.snapshot) == state_bytes(await replayed(store))


@pytest.mark.parametrize("damage", ["missing", "torn", "empty", "not text"])
async def test_damaged_bundle_is_passed_over_and_healed_by_the_next_opener(tmp_path: Path, damage: str) -> None:
    log = await open_log(file_store(tmp_path), checkpoint_every=10_000)
    await fill(log, 520)
    await log.close()
    store = file_store(tmp_path)
    path = Path(store.name) / bundle_name(256)
    good = path.read_bytes()
    path.unlink() if damage == "missing" else path.write_bytes(
        {"torn": good[:-20], "empty": b"", "not text": b"\xff\x00"}[damage]
    )
    again = await open_log(file_store(tmp_path), create=None)
    assert state_bytes(again.current) == state_bytes(log.current)
    await again.close()
    assert path.read_bytes() == good


async def test_crashed_writer_of_a_hinted_checkpoint_only_delays_the_next(tmp_path: Path) -> None:
    """A hint is a promise. When it is broken, later commits hint again and the tail stays bounded."""
    store = Intercepted(file_store(tmp_path))
    log = await open_log(store)

    async def refuse(*_: object) -> None:
        raise Unavailable("no checkpoint today")

    store.hooks["put_document"] = refuse
    await fill(log, 60, size=50)
    assert not await checkpoints(store.inner)
    store.hooks.clear()
    await fill(log, 60, "more", size=50)
    await log.close()
    assert await checkpoints(file_store(tmp_path))


async def test_error_that_nobody_foresaw_in_a_checkpoint_does_not_end_housekeeping(tmp_path: Path) -> None:
    store = Intercepted(file_store(tmp_path))
    log = await open_log(store)

    async def refuse(*_: object) -> None:
        raise RuntimeError("out of the blue")

    store.hooks["put_document"] = refuse
    await fill(log, 30, size=50)
    store.hooks.clear()
    await fill(log, 60, "more", size=50)
    await log.close()
    assert await checkpoints(file_store(tmp_path))


async def test_checkpoint_job_that_finds_the_queue_full_does_not_stop_later_ones(tmp_path: Path) -> None:
    log = await open_log(file_store(tmp_path))
    keeping = log._housekeeping
    full = [keeping._add(lambda: asyncio.sleep(0)) for _ in range(40)]
    assert full[0]
    assert not full[-1]
    keeping.committed(log.current, hint=True)
    await fill(log, 40, size=50)
    await log.close()
    assert await checkpoints(file_store(tmp_path))


async def test_two_processes_share_the_work_without_harm(tmp_path: Path) -> None:
    logs = [await open_log(file_store(tmp_path)) for _ in range(2)]
    await asyncio.gather(*(fill(log, 300, f"p{at}-", size=60) for at, log in enumerate(logs)))
    for log in logs:
        await log.refresh()
    assert state_bytes(logs[0].current) == state_bytes(logs[1].current)
    for log in logs:
        await log.close()
    found = await verify(file_store(tmp_path), REGISTRY)
    assert found.findings == ()
    assert found.bundles == 2


async def test_pointer_is_healed_by_the_next_checkpoint(tmp_path: Path) -> None:
    log = await open_log(file_store(tmp_path))
    await fill(log, 30)
    await log.checkpoint()
    store = file_store(tmp_path)
    await store.put_document(POINTER, b"\xff nonsense")
    await fill(log, 2, "more")
    version = await log.checkpoint()
    pointer = msgspec.json.decode((await store.get_document(POINTER) or (b"", ""))[0], type=Pointer)
    assert pointer.version == version
    await log.close()


async def test_checkpoint_is_read_back_before_the_pointer_shows_it() -> None:
    store = Intercepted(object_store())
    log = await open_log(store)
    await log.commit(lambda _: Decision([Put.of("k", 1)], None), txn_id="1")

    async def garble(put_document, name, body):  # type: ignore[no-untyped-def]
        await put_document(name, body[:-1])

    store.hooks["put_document"] = garble
    with pytest.raises(Exception, match="reads back different"):
        await log.checkpoint()
    assert POINTER not in await store.inner.documents()
    store.hooks.clear()
    await log.close()
    again = await open_log(store.inner, create=None)
    assert again.current.get("k") is not None
    await again.close()
