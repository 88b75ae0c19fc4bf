"""A root is made once, known again, and never made where something else lives."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from lakebed.clock import SystemClock
from lakebed.errors import Ambiguous, Corrupt, Exists, Invalid, NotFound
from lakebed.kernel import ROOT_FILE, CommitLog, domain_log, log_prefix, open_root
from lakebed.objects import LocalStore, MemoryStore
from tests.intercepted import Intercepted
from tests.logs import IDENTITY, REGISTRY, object_store, open_log

CLOCK = SystemClock()


async def test_root_is_created_once_and_known_again(tmp_path: Path) -> None:
    made = await open_root(LocalStore(tmp_path), create=True, domains=3, clock=CLOCK)
    again = await open_root(LocalStore(tmp_path), create=True, domains=8, clock=CLOCK)
    read = await open_root(LocalStore(tmp_path), create=False, clock=CLOCK)
    assert made == again == read
    assert made.log_names() == ["cluster", "domain=00", "domain=01", "domain=02", "lake"]
    assert made.identity("lake", CLOCK).root_id == made.root_id
    assert json.loads((tmp_path / ROOT_FILE).read_text())["domains"] == 3


async def test_racing_creators_agree() -> None:
    objects = MemoryStore()
    roots = await asyncio.gather(*(open_root(objects, create=True, domains=n, clock=CLOCK) for n in range(1, 9)))
    assert len(set(roots)) == 1


@pytest.mark.parametrize("error", [Ambiguous, Exists])
async def test_creation_whose_answer_is_lost_is_found(error: type[Exception]) -> None:
    objects = Intercepted(MemoryStore())

    async def lose(create, *args):  # type: ignore[no-untyped-def]
        await create(*args)
        raise error("lost")

    objects.hooks["create"] = lose
    root = await open_root(objects, create=True, domains=2, clock=CLOCK)
    assert root.domains == 2


async def test_nothing_there_is_not_found_without_leave_to_create() -> None:
    with pytest.raises(NotFound, match="no root"):
        await open_root(MemoryStore(), create=False, clock=CLOCK)


@pytest.mark.parametrize("create", [True, False])
async def test_folder_of_something_else_is_refused(tmp_path: Path, create: bool) -> None:
    (tmp_path / "thesis.doc").write_text("years of work")
    with pytest.raises(Invalid, match="not a Lakebed root") as caught:
        await open_root(LocalStore(tmp_path), create=create, clock=CLOCK)
    assert caught.value.remedy
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")) == ["thesis.doc"]


async def test_newer_format_is_refused(tmp_path: Path) -> None:
    await open_root(LocalStore(tmp_path), create=True, clock=CLOCK)
    path = tmp_path / ROOT_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2, "shape": "round"}))
    with pytest.raises(Invalid, match="format 2"):
        await open_root(LocalStore(tmp_path), create=True, clock=CLOCK)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b'{"format":1}', b'{"format":"one"}', b"[]"])
async def test_damaged_root_file_is_corrupt_and_never_written_over(tmp_path: Path, body: bytes) -> None:
    (tmp_path / ROOT_FILE).write_bytes(body)
    with pytest.raises(Corrupt, match=r"lakebed\.json") as caught:
        await open_root(LocalStore(tmp_path), create=True, clock=CLOCK)
    assert caught.value.remedy
    assert (tmp_path / ROOT_FILE).read_bytes() == body


@pytest.mark.parametrize("domains", [0, -1, 1001])
async def test_impossible_number_of_domains_is_refused(domains: int) -> None:
    with pytest.raises(Invalid, match="domains"):
        await open_root(MemoryStore(), create=True, domains=domains, clock=CLOCK)


def test_paths_of_logs() -> None:
    assert log_prefix(domain_log(7)) == "meta/domain=07/_delta_log"
    for name in ("", "domain=1", "../x", "cluster/x", "domain=٠٠"):
        with pytest.raises(Invalid):
            log_prefix(name)


async def test_log_of_another_root_is_refused() -> None:
    objects = MemoryStore()
    await (await open_log(object_store(objects))).close()
    theirs = msgspec.structs.replace(IDENTITY, log_id="log-2", root_id="root-2")
    with pytest.raises(Invalid, match="belongs to the root root-1, not to root-2") as refused:
        await open_log(object_store(objects), create=theirs)
    assert "oxia_namespace" in refused.value.remedy
    with pytest.raises(Invalid, match="root-3"):
        await CommitLog.open(object_store(objects), REGISTRY, clock=CLOCK, root_id="root-3")
    log = await CommitLog.open(object_store(objects), REGISTRY, clock=CLOCK, root_id="root-1")
    await log.close()
