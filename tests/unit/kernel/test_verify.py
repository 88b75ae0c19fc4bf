"""`verify` finds every kind of damage, and nothing in a good log."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lakebed.clock import SystemClock
from lakebed.config import ByteCount, KernelSettings
from lakebed.errors import Invalid
from lakebed.kernel import KERNEL_PARTS, Add, CommitLog, Decision, FileLogStore, Identity, Put, Registry, View
from lakebed.kernel.checkpoint import decode_checkpoint, encode_checkpoint
from lakebed.kernel.verification import Verification, verify
from lakebed.objects import LocalStore

PREFIX = "meta/domain=00/_delta_log"
REGISTRY = Registry(KERNEL_PARTS)
COMMITS = 600


def store(root: Path) -> FileLogStore:
    settings = KernelSettings(journal_bytes=ByteCount(0))  # a journal would heal what is damaged in a copy
    return FileLogStore(root, PREFIX, LocalStore(root), settings=settings)


async def looked(root: Path) -> Verification:
    opened = store(root)
    try:
        return await verify(opened, REGISTRY)
    finally:
        await opened.close()


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("good")
    asyncio.run(fill(root))
    return root


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    """A copy of a good log, to be damaged."""
    shutil.copytree(good, tmp_path, dirs_exist_ok=True)
    return tmp_path / PREFIX


async def fill(root: Path) -> None:
    log = await CommitLog.open(
        store(root),
        REGISTRY,
        clock=SystemClock(),
        settings=KernelSettings(),
        create=Identity("log", "root", "demo"),
    )
    for number in range(COMMITS):

        def decide(view: View, number: int = number) -> Decision[None]:
            stream = view.stream(1)
            start = stream.end if stream else 0
            add = Add(stream=1, offset_start=start, offset_end=start + 2, segment=f"s{number}", size=9)
            return Decision([Put.of(f"k{number % 50}", number), add], None)

        await log.commit(decide, txn_id=f"t{number}")
    await log.checkpoint()
    await log.close()


async def test_good_log_has_no_findings(folder: Path) -> None:
    found = await looked(folder.parents[2])
    assert found.findings == ()
    assert (found.oldest, found.newest, found.commits, found.bundles) == (0, COMMITS, COMMITS + 1, 2)
    assert found.checkpoints > 1


async def test_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="there is no log"):
        await looked(tmp_path)


def commit(number: int) -> str:
    return f"{number:020d}.json"


def edit(folder: Path, number: int, change: Callable[[dict], object]) -> None:  # type: ignore[type-arg]
    path = folder / commit(number)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def newest_checkpoint(folder: Path) -> Path:
    return sorted(folder.glob("*.checkpoint.json"))[-1]


def lie(folder: Path) -> None:
    """A checkpoint with a right checksum and a wrong state."""
    path, other = newest_checkpoint(folder), sorted(folder.glob("*.checkpoint.json"))[0]
    truth, log_id = decode_checkpoint(path.read_bytes(), path.name, REGISTRY)
    wrong, _ = decode_checkpoint(other.read_bytes(), other.name, REGISTRY)
    wrong.version, wrong.timestamp = truth.version, truth.timestamp
    path.write_bytes(encode_checkpoint(wrong, log_id))


DAMAGE: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "truncated commit": (lambda f: (f / commit(300)).write_bytes((f / commit(300)).read_bytes()[:50]), commit(300), ""),
    "empty commit": (lambda f: (f / commit(300)).write_bytes(b""), commit(300), ""),
    "commit that is not JSON": (lambda f: (f / commit(300)).write_bytes(b"\xff\xfe"), commit(300), ""),
    "commit of another version": (lambda f: edit(f, 300, lambda d: d.update(version=299)), commit(300), "version 299"),
    "duplicated commit": (
        lambda f: edit(f, 300, lambda d: d.update(txn_id="t3")), commit(300), "repeats the transaction t3",
    ),
    "missing commit": (lambda f: (f / commit(300)).unlink(), commit(300), "is missing"),
    "missing first commit": (lambda f: (f / commit(0)).unlink(), commit(0), "is missing"),
    "unknown operation": (lambda f: edit(f, 300, lambda d: d["operations"][0].update(type="x")), commit(300), ""),
    "older timestamp": (lambda f: edit(f, 300, lambda d: d.update(timestamp="2001-01-01T00:00:00.000Z")), commit(300), "younger"),
    "gap in a stream": (
        lambda f: edit(f, 300, lambda d: d["operations"][1].update(offset_start=5000)), commit(300), "does not follow",
    ),
    "newer format": (
        lambda f: edit(f, 0, lambda d: d["operations"][0]["value"].update(format=99)), commit(0), "format 99",
    ),
    "torn checkpoint": (
        lambda f: newest_checkpoint(f).write_bytes(newest_checkpoint(f).read_bytes()[:-9]), "checkpoint", "torn",
    ),
    "lying checkpoint": (lie, "checkpoint", "is not the state"),
    "missing checkpoint": (lambda f: newest_checkpoint(f).unlink(), "_last_checkpoint", "which is missing"),
    "torn pointer": (lambda f: (f / "_last_checkpoint").write_bytes(b"{"), "_last_checkpoint", "cannot be read"),
    "torn bundle": (lambda f: (f / f"{256:020d}.bundle.json").write_bytes(b"{}"), "bundle", ""),
    "foreign file": (lambda f: (f / "notes.txt").write_text("x"), "notes.txt", "is not a document"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGE)
async def test_damage_is_found_and_named(folder: Path, case: str) -> None:
    damage, name, problem = DAMAGE[case]
    damage(folder)
    found = await looked(folder.parents[2])
    assert any(name in each.name and problem in each.problem and each.remedy for each in found.findings), found.findings
