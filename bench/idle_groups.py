"""What ten thousand groups cost whose members only say that they are there: commits of the log, and a list of all of them."""

from __future__ import annotations

import asyncio
import re
import time
import urllib.request
from pathlib import Path

from tests.services.lakebed_server import lakebed_server

from bench.group_load import Link
from bench.report import Figure
from lakebed.protocol import Api, heartbeat, join_group, list_groups, sync_group

_LINKS, _SESSION_MS, _TRIES = 64, 600_000, 100
_SETTINGS = {"LAKEBED__GROUPS__INITIAL_REBALANCE_DELAY": "0s"}
_COMMITS = re.compile(rb"^lakebed_kernel_commits_total(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)
_JOIN, _SYNC, _BEAT, _LIST = 3, 3, 3, 4


async def idle_groups(folder: Path, count: int, seconds: float) -> list[Figure]:
    """Make `count` groups of one member, then let them beat once in `seconds`."""
    with lakebed_server(folder, command=("broker",), environment=_SETTINGS) as server:
        first = await Link.to_coordinator(server.bootstrap, "g0")
        links = [await Link.open(server.bootstrap) for _ in range(_LINKS)]
        members = await asyncio.gather(*(_made(links[n], range(n, count, _LINKS)) for n in range(_LINKS)))
        ids = [each for some in members for each in some]
        before = _commits(server.http)
        await _beat_all(links, ids, seconds)
        commits = (_commits(server.http) - before) * 60 / seconds
        listed_s, stalled_s = await _listed(first, links[0], count)
    told = f"{count} groups of a member that beats, for {seconds:.0f} s"
    return [
        Figure("idle_groups_10k_commits_per_minute", commits, told, 60, at_least=False),
        Figure("list_10k_groups_s", listed_s, f"ListGroups of {count} groups", 1.0, at_least=False),
        Figure("list_10k_groups_stall_ms", stalled_s * 1000, "the longest that another client waited meanwhile"),
    ]


async def _made(link: Link, numbers: range) -> list[tuple[str, str]]:
    made = []
    for number in numbers:
        group = f"g{number}"
        protocols = [join_group.JoinGroupRequestProtocol("range", b"\x00\x01\x00\x00\x00\x00")]
        joining = join_group.JoinGroupRequest(
            group, _SESSION_MS, _SESSION_MS, "", protocol_type="consumer", protocols=protocols
        )
        for _ in range(_TRIES):
            joined = await link.ask(Api.JOIN_GROUP, _JOIN, joining)
            if not joined.error_code:
                break
            await asyncio.sleep(0.1)  # its slot is being taken
        member = joined.member_id
        assigned = [sync_group.SyncGroupRequestAssignment(member, b"all")]
        syncing = sync_group.SyncGroupRequest(group, joined.generation_id, member, assignments=assigned)
        assert not (await link.ask(Api.SYNC_GROUP, _SYNC, syncing)).error_code
        made.append((group, member))
    return made


async def _beat_all(links: list[Link], ids: list[tuple[str, str]], seconds: float) -> None:
    began_s = time.monotonic()
    for number, (group, member) in enumerate(ids):
        await asyncio.sleep(max(0.0, began_s + seconds * number / len(ids) - time.monotonic()))
        request = heartbeat.HeartbeatRequest(group, 1, member)
        answer = await links[number % len(links)].ask(Api.HEARTBEAT, _BEAT, request)
        assert not answer.error_code, f"{group} was answered {answer.error_code}"


async def _listed(asking: Link, other: Link, count: int) -> tuple[float, float]:
    """How long a list of all takes, and the longest that a heartbeat takes beside it."""
    probe = heartbeat.HeartbeatRequest("g0", 1, "nobody")
    began_s, stalled_s = time.monotonic(), 0.0
    listing = asyncio.create_task(asking.ask(Api.LIST_GROUPS, _LIST, list_groups.ListGroupsRequest()))
    while not listing.done():
        asked_s = time.monotonic()
        await other.ask(Api.HEARTBEAT, _BEAT, probe)
        stalled_s = max(stalled_s, time.monotonic() - asked_s)
    assert len((await listing).groups) == count
    return time.monotonic() - began_s, stalled_s


def _commits(http: str) -> float:
    with urllib.request.urlopen(f"{http}/metrics", timeout=30) as answer:
        return sum(float(found) for found in _COMMITS.findall(answer.read()))
