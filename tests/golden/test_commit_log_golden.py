"""The golden commit log: it is read as ever, written as ever, and the documentation shows just these bytes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import msgspec
import pytest

from lakebed.clock import FakeClock, SystemClock
from lakebed.errors import Invalid
from lakebed.kernel import (
    ROOT_FILE,
    Decision,
    FileLogStore,
    ForgetStreams,
    Registry,
    Remove,
    Snapshot,
    Version,
    open_root,
    verify,
)
from lakebed.kernel.bundle import bundle_name, decode_bundle
from lakebed.kernel.checkpoint import POINTER
from lakebed.kernel.documents import commit_name
from lakebed.kernel.keys import KeysPart
from lakebed.kernel.streams import StreamsPart
from lakebed.objects import LocalStore
from tests.golden.make_commit_log import BORN_MS, LOG, make
from tests.logs import REGISTRY, open_log, state_bytes

GOLDEN = Path(__file__).parent / "commit_log"
FORGETTING = GOLDEN.parent / "forgotten_stream" / commit_name(257)
DOCUMENT = Path(__file__).parents[2] / "docs" / "formats" / "commit-log.md"
CHECKPOINT = "00000000000000000256.checkpoint.json"


def laid_out(root: Path, *, without: tuple[str, ...] = ()) -> FileLogStore:
    """The golden files as a root; commits that are only in the bundle get files of their own."""
    folder = root / LOG
    folder.mkdir(parents=True)
    for path in GOLDEN.iterdir():
        if path.name not in without:
            shutil.copy(path, root if path.name == ROOT_FILE else folder)
    commits = decode_bundle((GOLDEN / bundle_name(0)).read_bytes(), bundle_name(0))
    for version, body in enumerate(commits):
        (folder / commit_name(version)).write_bytes(body)
    return FileLogStore(root, LOG, LocalStore(root))


def is_as_it_was(snapshot: Snapshot) -> None:
    assert snapshot.version == 256
    assert {
        key: (entry.version, entry.decode(object)) for key, entry in snapshot.scan() if key != "kernel/identity"
    } == {
        "counter": (256, 252),
        "group/g1": (4, {"state": "Stable"}),
        "group/g2": (4, {"state": "Stable"}),
        "topic/orders": (1, {"name": "orders", "partitions": 1}),
    }
    wal = "wal/v1/zone=a/domain=00/date=2025/11/15/0199.wo"
    assert [list(map(tuple, stream.entries())) for _, stream in snapshot.streams()] == [
        [
            (0, 8, "delta/orders-1/data/p0.parquet", 0, 1200, "parquet", 1200, BORN_MS, BORN_MS + 5, 3, ""),
            (8, 10, wal, 433, 96, "wal", 480, BORN_MS + 6, BORN_MS + 6, 2, ""),
        ],
        [(0, 1, wal, 529, 70, "wal", 0, -1, -1, 2, "")],
    ]


@pytest.mark.parametrize(
    "without",
    [
        (),
        (POINTER,),
        (CHECKPOINT, POINTER),
        (CHECKPOINT, CHECKPOINT + ".zst", POINTER),
        (CHECKPOINT, CHECKPOINT + ".zst", POINTER, bundle_name(0)),
    ],
    ids=["pointer", "newest checkpoint", "compressed checkpoint", "bundle", "single commits"],
)
async def test_golden_log_reads_the_same_by_every_way(tmp_path: Path, without: tuple[str, ...]) -> None:
    log = await open_log(laid_out(tmp_path, without=without), create=None)
    is_as_it_was(log.current)
    await log.close()


async def test_golden_log_verifies(tmp_path: Path) -> None:
    found = await verify(laid_out(tmp_path), REGISTRY)
    assert found.findings == ()
    assert (found.newest, found.checkpoints, found.bundles) == (256, 2, 1)


async def test_golden_root_reads_the_same(tmp_path: Path) -> None:
    laid_out(tmp_path)
    root = await open_root(LocalStore(tmp_path), create=False, clock=SystemClock())
    assert (root.format, root.domains, root.created) == (1, 2, "2025-11-15T06:20:31.125Z")


async def test_the_same_history_is_written_as_the_same_bytes(tmp_path: Path) -> None:
    await make(tmp_path)
    for path in GOLDEN.iterdir():
        if path.suffix != ".zst":  # how it compresses is up to the library
            folder = tmp_path if path.name == ROOT_FILE else tmp_path / LOG
            assert (folder / path.name).read_bytes() == path.read_bytes(), path.name


async def test_stream_is_forgotten_by_the_golden_commit_as_ever(tmp_path: Path) -> None:
    store = laid_out(tmp_path)
    shutil.copy(FORGETTING, tmp_path / LOG)
    log = await open_log(store, create=None)
    assert [number for number, _ in log.current.streams()] == [7]
    assert [number for number, _ in (await log.snapshot(Version(256))).streams()] == [7, 9]
    assert (await verify(store, REGISTRY)).findings == ()
    await log.close()


async def test_forgetting_a_stream_is_written_as_the_same_bytes(tmp_path: Path) -> None:
    clock = FakeClock(BORN_MS + 9_000)
    log = await open_log(laid_out(tmp_path), clock=clock, create=None)
    segment = Remove(stream=9, offset_start=0, offset_end=1, released_ms=clock.now_ms())
    await log.commit(lambda _: Decision([segment, ForgetStreams(streams=[9])], None), txn_id="b1:257")
    await log.close()
    assert (tmp_path / LOG / FORGETTING.name).read_bytes() == FORGETTING.read_bytes()


async def test_program_that_does_not_know_how_to_forget_a_stream_refuses_the_log(tmp_path: Path) -> None:
    store = laid_out(tmp_path)
    shutil.copy(FORGETTING, tmp_path / LOG)
    older = StreamsPart()
    older.operations = tuple(kind for kind in older.operations if kind is not ForgetStreams)
    with pytest.raises(Invalid, match="forget_streams"):
        await open_log(store, registry=Registry([KeysPart(), older]), create=None)


async def test_replay_of_the_golden_commits_equals_the_golden_checkpoint(tmp_path: Path) -> None:
    log = await open_log(laid_out(tmp_path / "a", without=(CHECKPOINT, CHECKPOINT + ".zst", POINTER)), create=None)
    pointed = await open_log(laid_out(tmp_path / "b"), create=None)
    assert state_bytes(log.current) == state_bytes(pointed.current)
    await log.close()
    await pointed.close()


def test_documentation_shows_the_golden_bytes() -> None:
    """Every block marked with a file's name holds that file, or lines of it, but for line breaks and spaces."""
    blocks = re.findall(r"<!-- golden: (\S+) -->\n```json(?:l)?\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert {name for name, _ in blocks} >= {
        ROOT_FILE, commit_name(0), commit_name(2), commit_name(4), CHECKPOINT, bundle_name(0), POINTER,
        f"../{FORGETTING.parent.name}/{FORGETTING.name}",
    }  # fmt: skip
    for name, shown in blocks:
        lines = [msgspec.json.decode(line) for line in (GOLDEN / name).read_bytes().split(b"\n")]
        for each in _values(shown):
            assert each in lines, (name, each)


def _values(shown: str) -> list[object]:
    """JSON documents, one after the other; one begins at the start of a line, and lines that continue it are indented."""
    documents = re.split(r"\n(?=[\[{])", shown.replace("…\n", "").strip())
    return [msgspec.json.decode(document) for document in documents]
