"""Whoever leads a slot wrongly can do no harm, and one that died keeps nobody waiting.

A holder that slept; one that was killed, though its lease runs on; a log that fails, repeats and loses answers.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from lakebed.config import Address, KernelSettings, LeaseSettings, Seconds
from lakebed.objects import FaultRates, FaultSchedule
from lakebed.protocol import ErrorCode
from tests.clients.processes import BrokerProcess, broker_process
from tests.clients.test_faulty_stores import FaultyApp
from tests.unit.broker.conftest import settings_for
from tests.unit.broker.requests import make_topic
from tests.unit.broker.test_group_slots import PATIENCE_S, QUICK, beat, commit, fetched, find, found, join, joined
from tests.unit.broker.wire import Wire, wired

ENVIRONMENT = {"LAKEBED__LEASES__TTL": "1s", "LAKEBED__GROUPS__INITIAL_REBALANCE_DELAY": "100ms"}
LONG_LEASE = {**ENVIRONMENT, "LAKEBED__LEASES__TTL": "120s"}
TAKEOVER_S = 10.0
REFUSALS = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
RETRIED = REFUSALS | {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT}
RATES = FaultRates(refused=0.5, answer_lost=0.1, lands_later=0.2)


async def test_broker_that_slept_answers_for_no_group_that_another_has_taken(tmp_path: Path) -> None:
    with (
        broker_process(tmp_path / "root", tmp_path / "one", environment=ENVIRONMENT) as one,
        broker_process(tmp_path / "root", tmp_path / "two", environment=ENVIRONMENT) as two,
    ):
        async with wired(_address(one)) as first, wired(_address(two)) as second:
            await make_topic(first, "t")
            wires = {1: (first, one), 2: (second, two)}
            leader = await found(first, "g")
            sleeper, asleep = wires.pop(leader)
            assert await found(sleeper, "g") == leader
            member = await joined(sleeper, "g")
            ((waker, _),) = wires.values()
            assert asleep._process is not None
            os.kill(asleep._process.pid, signal.SIGSTOP)
            async with asyncio.timeout(PATIENCE_S):
                while await found(waker, "g") == leader:
                    await asyncio.sleep(0.05)
            assert await beat(waker, "g", member) == ErrorCode.NONE
            assert await commit(waker, "h", "t", 1) in {ErrorCode.NONE, *REFUSALS}
            os.kill(asleep._process.pid, signal.SIGCONT)
            assert await beat(sleeper, "g", member) in REFUSALS
            assert (await join(sleeper, "g", member.member_id)).error_code in REFUSALS
            assert await beat(waker, "g", member) == ErrorCode.NONE


async def test_neighbour_takes_the_groups_of_a_killed_broker_before_its_lease_is_over(tmp_path: Path) -> None:
    with (
        broker_process(tmp_path / "root", tmp_path / "one", environment=LONG_LEASE) as one,
        broker_process(tmp_path / "root", tmp_path / "two", environment=LONG_LEASE) as two,
    ):
        async with wired(_address(one)) as first, wired(_address(two)) as second:
            await make_topic(first, "t")
            wires = {1: (first, one, second), 2: (second, two, first)}
            leader = await found(first, "g")
            wire, victim, survivor = wires[leader]
            assert await found(wire, "g") == leader
            member = await joined(wire, "g")
            assert await commit(wire, "h", "t", 7) in {ErrorCode.NONE, *REFUSALS}
            victim.kill()
            async with asyncio.timeout(TAKEOVER_S):
                while await _coordinator(survivor, "g") in {None, leader}:
                    await asyncio.sleep(0.05)
                assert await beat(survivor, "g", member) == ErrorCode.NONE


async def test_killed_broker_leads_its_groups_again_as_soon_as_it_is_back(tmp_path: Path) -> None:
    with broker_process(tmp_path / "root", tmp_path / "log", environment=LONG_LEASE) as broker:
        async with wired(_address(broker)) as wire:
            await make_topic(wire, "t")
            await found(wire, "g")
            member = await joined(wire, "g")
            broker.kill()
        broker.start()
        async with wired(_address(broker)) as wire, asyncio.timeout(TAKEOVER_S):
            while await beat(wire, "g", member) != ErrorCode.NONE:
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("seed", [1])
async def test_committed_offsets_never_go_back_on_a_faulty_log(tmp_path: Path, seed: int) -> None:
    settings = msgspec.structs.replace(
        settings_for(tmp_path / "root", drain_timeout_s=Seconds(5)),
        leases=LeaseSettings(ttl_s=Seconds(2)),
        groups=QUICK,
        kernel=KernelSettings(commit_timeout_s=Seconds(0.1)),
    )
    async with AsyncExitStack() as stack:
        app = FaultyApp(settings, seed, "log")
        app.schedule = FaultSchedule(seed, RATES)
        app.schedule.calm()
        stack.push_async_callback(app.stop)
        ready = await app.start()
        async with wired(ready.kafka) as wire:
            await make_topic(wire, "t")
            app.begin()
            refusals = await asyncio.gather(*(_commit_in_order(ready.kafka, f"g{number}") for number in range(8)))
            app.schedule.calm()
        assert sum(refusals), "no step failed"


async def _commit_in_order(address: Address, group: str) -> int:
    """Commit 1, 2, 3 …, each until it is acknowledged, and look at what is there; how many tries were refused."""
    refusals = 0
    async with wired(address) as wire, asyncio.timeout(PATIENCE_S):
        for offset in range(1, 21):
            while code := await commit(wire, group, "t", offset):
                assert code in RETRIED, code
                refusals += code not in REFUSALS
                await asyncio.sleep(0.01)
            assert await _looked(wire, group) == {("t", 0): offset}
    return refusals


async def _looked(wire: Wire, group: str) -> dict[tuple[str, int], int]:
    while True:
        try:
            return await fetched(wire, group)
        except AssertionError:
            await asyncio.sleep(0.02)


async def _coordinator(wire: Wire, group: str) -> int | None:
    answer = await find(wire, group)
    return None if answer.error_code else answer.node_id


def _address(broker: BrokerProcess) -> Address:
    return Address("127.0.0.1", broker.port)
