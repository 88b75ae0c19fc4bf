"""Damaged logs: opening fails with file and remedy where it must and is only slower where it can; `verify` finds all."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lakebed.errors import Corrupt, Invalid, LakebedError, NotFound
from lakebed.kernel import Committed, Decision, Put, verify
from lakebed.kernel.bundle import bundle_name, decode_bundle, encode_bundle
from lakebed.kernel.checkpoint import POINTER, decode_checkpoint, encode_checkpoint
from lakebed.kernel.documents import commit_name
from tests.logs import PREFIX, REGISTRY, file_store, increment, open_log, state_bytes
from tests.unit.kernel.test_stream_index import add

COMMITS = 300
NEWEST = 280
"""The newest checkpoint; commits after it are read one by one."""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("good")
    asyncio.run(_fill(root))
    return root


async def _fill(root: Path) -> None:
    log = await open_log(
        file_store(root, journal_bytes=0), checkpoint_every=10_000
    )  # one would heal what is damaged in a copy
    for number in range(COMMITS):
        operations = [Put.of(f"k{number % 20}", number), add(number, number + 1, f"s{number // 7}")]
        await log.commit(lambda _, ops=operations: Decision(ops, None), txn_id=f"t{number}")
        if number in (99, NEWEST - 1):
            await log.checkpoint()
    await log.close()


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    shutil.copytree(good, tmp_path, dirs_exist_ok=True)
    return tmp_path / PREFIX


def edit(path: Path, change: Callable[[dict], object]) -> None:  # type: ignore[type-arg]
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def checkpoint(version: int) -> str:
    return f"{version:020d}.checkpoint.json"


def from_the_future(document: bytes) -> bytes:
    return document.replace(b'"format":1', b'"format":9', 1)


def lie(folder: Path, version: int) -> None:
    """A right checksum over a wrong state."""
    path = folder / checkpoint(version)
    snapshot, log_id = decode_checkpoint(path.read_bytes(), path.name, REGISTRY)
    wrong, _ = decode_checkpoint((folder / checkpoint(100)).read_bytes(), checkpoint(100), REGISTRY)
    wrong.version, wrong.timestamp = snapshot.version, snapshot.timestamp
    if version == 100:
        wrong.parts["keys"] = REGISTRY.parts["keys"].empty()
    path.write_bytes(encode_checkpoint(wrong, log_id))


def lie_in_bundle(folder: Path) -> None:
    path = folder / bundle_name(0)
    commits = decode_bundle(path.read_bytes(), path.name)
    commits[7] = commits[7].replace(b'"value":6', b'"value":9')
    path.write_bytes(encode_bundle(0, commits))


T = commit_name(290)
"""A commit in the tail, which every opener reads."""

STOPS: dict[str, tuple[Callable[[Path], object], str, type[LakebedError]]] = {
    "truncated commit": (lambda f: (f / T).write_bytes((f / T).read_bytes()[:40]), T, Corrupt),
    "empty commit": (lambda f: (f / T).write_bytes(b""), T, Corrupt),
    "commit that is not JSON": (lambda f: (f / T).write_bytes(b"\xff\xfe\x00"), T, Corrupt),
    "commit with another number": (lambda f: edit(f / T, lambda d: d.update(version=291)), T, Corrupt),
    "commit with a field from the future": (lambda f: edit(f / T, lambda d: d.update(shape="round")), T, Corrupt),
    "commit copied over another": (lambda f: shutil.copy(f / commit_name(289), f / T), T, Corrupt),
    "missing commit": (lambda f: (f / T).unlink(), T, Corrupt),
    "missing commit right after the checkpoint": (
        lambda f: (f / commit_name(NEWEST + 1)).unlink(), commit_name(NEWEST + 1), Corrupt,
    ),
    "operation of unknown kind": (lambda f: edit(f / T, lambda d: d["operations"][0].update(type="merge")), T, Invalid),
    "operation that does not follow": (
        lambda f: edit(f / T, lambda d: d["operations"][1].update(offset_start=7000, offset_end=7001)), T, Corrupt,
    ),
    "checkpoint of a newer format": (
        lambda f: (f / checkpoint(NEWEST)).write_bytes(from_the_future((f / checkpoint(NEWEST)).read_bytes())),
        checkpoint(NEWEST), Invalid,
    ),
}  # fmt: skip

SLOWER: dict[str, tuple[Callable[[Path], object], str]] = {
    "torn checkpoint": (
        lambda f: (f / checkpoint(NEWEST)).write_bytes((f / checkpoint(NEWEST)).read_bytes()[:-30]), checkpoint(NEWEST),
    ),
    "empty checkpoint": (lambda f: (f / checkpoint(NEWEST)).write_bytes(b""), checkpoint(NEWEST)),
    "missing checkpoint": (lambda f: (f / checkpoint(NEWEST)).unlink(), POINTER),
    "checkpoint under another number": (
        lambda f: (f / checkpoint(NEWEST)).rename(f / checkpoint(NEWEST + 1)), checkpoint(NEWEST + 1),
    ),
    "pointer that is not JSON": (lambda f: (f / POINTER).write_bytes(b"\xff{"), POINTER),
    "empty pointer": (lambda f: (f / POINTER).write_bytes(b""), POINTER),
    "pointer to nowhere": (
        lambda f: edit(f / POINTER, lambda d: d.update(version=10**9, name=checkpoint(10**9))), POINTER,
    ),
    "pointer out of the folder": (lambda f: edit(f / POINTER, lambda d: d.update(name="../../../secret")), POINTER),
    "pointer to a commit": (lambda f: edit(f / POINTER, lambda d: d.update(name=commit_name(3))), POINTER),
    "torn bundle": (lambda f: (f / bundle_name(0)).write_bytes((f / bundle_name(0)).read_bytes()[:-3]), bundle_name(0)),
    "empty bundle": (lambda f: (f / bundle_name(0)).write_bytes(b""), bundle_name(0)),
    "foreign file": (lambda f: (f / "notes.txt").write_text("x"), "notes.txt"),
    "commit that a checkpoint covers, truncated": (
        lambda f: (f / commit_name(50)).write_bytes((f / commit_name(50)).read_bytes()[:40]), commit_name(50),
    ),
    "commit that a checkpoint covers, missing": (lambda f: (f / commit_name(50)).unlink(), commit_name(50)),
    "lying old checkpoint": (lambda f: lie(f, 100), checkpoint(100)),
    "lying bundle": (lie_in_bundle, bundle_name(0)),
    "timestamp that goes back": (
        lambda f: edit(f / T, lambda d: d.update(timestamp="2001-01-01T00:00:00.000Z")), T,
    ),
    "timestamp that is none": (lambda f: edit(f / T, lambda d: d.update(timestamp="yesterday")), T),
    "transaction committed twice": (lambda f: edit(f / T, lambda d: d.update(txn_id="t3")), T),
}  # fmt: skip


@pytest.mark.parametrize("case", STOPS)
async def test_damage_that_matters_stops_opening_and_names_file_and_remedy(folder: Path, case: str) -> None:
    damage, name, kind = STOPS[case]
    damage(folder)
    with pytest.raises(kind) as caught:
        await open_log(file_store(folder.parents[2]), create=None)
    assert name in caught.value.problem
    assert caught.value.remedy
    await finds(folder, name)


@pytest.mark.parametrize("case", SLOWER)
async def test_damage_beside_the_tail_only_slows_opening_and_is_found(good: Path, folder: Path, case: str) -> None:
    damage, name = SLOWER[case]
    damage(folder)
    await finds(folder, name)  # before anyone opens the log and heals what can be healed
    log = await open_log(file_store(folder.parents[2]), create=None)
    if "lying" not in case and "timestamp" not in case:
        truth = await open_log(file_store(good), create=None)
        assert state_bytes(log.current) == state_bytes(truth.current)
        await truth.close()
    assert isinstance(await log.commit(increment("works"), txn_id="works"), Committed)
    await log.close()


async def finds(folder: Path, name: str) -> None:
    found = await verify(file_store(folder.parents[2]), REGISTRY)
    assert not found.ok
    assert any(name in each.name and each.problem and each.remedy for each in found.findings), found.findings


async def test_lying_newest_checkpoint_is_found(folder: Path) -> None:
    lie(folder, NEWEST)
    found = await verify(file_store(folder.parents[2]), REGISTRY)
    lies = [each for each in found.findings if each.name == checkpoint(NEWEST)]
    assert lies
    assert lies[0].severity == "error"


async def test_checkpoint_of_another_log_is_found(folder: Path) -> None:
    path = folder / checkpoint(NEWEST)
    snapshot, _ = decode_checkpoint(path.read_bytes(), path.name, REGISTRY)
    path.write_bytes(encode_checkpoint(snapshot, "another-log"))
    found = await verify(file_store(folder.parents[2]), REGISTRY)
    assert any("another-log" in each.problem for each in found.findings)


async def test_commits_lost_behind_a_checkpoint_are_found(folder: Path) -> None:
    for number in range(NEWEST - 5, COMMITS + 1):
        (folder / commit_name(number)).unlink()
    found = await verify(file_store(folder.parents[2]), REGISTRY)
    missing = [each.name for each in found.findings if each.problem == "is missing" and each.severity == "error"]
    assert missing == [commit_name(number) for number in range(NEWEST - 5, NEWEST + 1)]


async def test_several_damages_are_all_found(folder: Path) -> None:
    (folder / commit_name(20)).write_bytes(b"")
    (folder / commit_name(150)).unlink()
    (folder / T).write_bytes(b"{}")
    lie(folder, NEWEST)
    found = await verify(file_store(folder.parents[2]), REGISTRY)
    names = {each.name for each in found.findings}
    assert {commit_name(20), commit_name(150), T} <= names


async def test_good_log_has_no_findings(folder: Path) -> None:
    found = await verify(file_store(folder.parents[2]), REGISTRY)
    assert found.findings == ()
    assert (found.oldest, found.newest, found.commits, found.checkpoints, found.bundles) == (0, 300, 301, 2, 1)


async def test_folder_without_a_log_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no log"):
        await open_log(file_store(tmp_path), create=None)
    with pytest.raises(Invalid, match="there is no log"):
        await verify(file_store(tmp_path), REGISTRY)


async def test_log_of_a_newer_format_or_without_identity_is_refused(tmp_path: Path) -> None:
    log = await open_log(file_store(tmp_path))
    await log.close()
    path = tmp_path / PREFIX / commit_name(0)
    good = path.read_text()
    edit(path, lambda d: d["operations"][0]["value"].update(format=2))
    with pytest.raises(Invalid, match="format 2"):
        await open_log(file_store(tmp_path))
    assert not (await verify(file_store(tmp_path), REGISTRY)).ok
    path.write_text(good.replace("kernel/identity", "kernel/something"))
    with pytest.raises(Corrupt, match="no identity"):
        await open_log(file_store(tmp_path))
    assert not (await verify(file_store(tmp_path), REGISTRY)).ok
    path.write_text(good)
    edit(path, lambda d: d["operations"][0].update(value="who am I"))
    with pytest.raises(Corrupt, match="identity"):
        await open_log(file_store(tmp_path))
