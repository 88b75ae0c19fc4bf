"""A group of more members than one connection brings: all hear of each generation, and each gets its own share."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from lakebed.protocol import Api, ErrorCode, join_group, sync_group
from tests.unit.broker.conftest import StartBroker
from tests.unit.broker.test_group_slots import found, join, quick
from tests.unit.broker.wire import Wire, wired

MEMBERS = 30


async def synced(wire: Wire, me: join_group.JoinGroupResponse) -> bytes:
    """What the leader, which shares out numbers, has assigned."""
    shares = [sync_group.SyncGroupRequestAssignment(each.member_id, b"%d" % at) for at, each in enumerate(me.members)]
    request = sync_group.SyncGroupRequest("g", me.generation_id, me.member_id, assignments=shares)
    answer = await wire.ask(Api.SYNC_GROUP, 3, request)
    assert isinstance(answer, sync_group.SyncGroupResponse)
    assert answer.error_code == ErrorCode.NONE
    return bytes(answer.assignment)


async def test_every_member_hears_of_every_generation_and_gets_its_share(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = await start_broker(quick(tmp_path, ttl_s=30.0))
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(wired(broker.kafka)) for _ in range(MEMBERS)]
        await found(wires[0], "g")
        members = await asyncio.gather(*(join(wire, "g") for wire in wires))
        for generation in (1, 2, 3):
            assert {each.generation_id for each in members} == {generation}
            assert sum(bool(each.members) for each in members) == 1
            shares = await asyncio.gather(*(synced(wire, me) for wire, me in zip(wires, members, strict=True)))
            assert sorted(shares) == sorted(b"%d" % at for at in range(MEMBERS))
            leader = next(at for at, each in enumerate(members) if each.members)
            order = [leader, *(at for at in range(MEMBERS) if at != leader)]  # only a leader asks a stable group anew
            asked = {at: asyncio.create_task(join(wires[at], "g", members[at].member_id)) for at in order}
            members = [await asked[at] for at in range(MEMBERS)]
