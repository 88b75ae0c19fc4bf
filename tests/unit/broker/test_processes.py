"""Proof of death, and what follows from it for the ids of brokers."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from lakebed.broker import Membership
from lakebed.broker.processes import is_dead, process_name
from lakebed.clock import FakeClock
from lakebed.config import Address
from lakebed.errors import Invalid
from lakebed.objects import Leases, MemoryStore
from lakebed.observe import Logs

TELL_AND_WAIT = "from lakebed.broker.processes import process_name as n; print(n(), flush=True); input()"
HERE = {"PLAINTEXT": Address("127.0.0.1", 9092)}

pytestmark = pytest.mark.skipif(not process_name(), reason="this system does not tell one process from another")


@pytest.fixture
def other() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", TELL_AND_WAIT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _name(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_process_is_dead_when_it_was_killed_and_not_before(other: subprocess.Popen[str]) -> None:
    name = _name(other)
    assert not is_dead(name)
    assert not is_dead(process_name())
    _kill(other)
    assert is_dead(name)


def test_killed_process_that_nobody_buried_is_dead(other: subprocess.Popen[str]) -> None:
    name = _name(other)
    other.kill()
    assert other.stdout is not None
    assert other.stdout.read() == ""  # its end of the pipe is closed: it runs no more
    while not is_dead(name):
        pass
    other.communicate()


def test_process_whose_number_another_has_now_is_dead() -> None:
    world, pid, started = process_name().split(" ")
    assert is_dead(f"{world} {pid} {int(started) + 1}")


@pytest.mark.parametrize("name", ["", "nowhere", "elsewhere 1 1", "elsewhere/1 99999999 5", " 1 1"])
def test_process_that_cannot_be_seen_from_here_may_live(name: str) -> None:
    assert not is_dead(name)


async def test_id_of_a_dead_process_is_free_at_once_and_of_a_living_one_is_not(other: subprocess.Popen[str]) -> None:
    store, clock, logger = MemoryStore(), FakeClock(), Logs.silent().logger("test")
    held = await Leases(store, clock, 10.0).acquire("brokers/0000000007", "other", {"process": _name(other)})
    assert held is not None
    living = await Leases(store, clock, 10.0).acquire("brokers/0000000008", "else", {"process": process_name()})
    assert living is not None
    _kill(other)
    broker = Membership(Leases(store, clock, 10.0), clock, logger)
    assert (await broker.join(7, "a", "a", "test", HERE)).id == 7
    await broker.leave()
    second = Membership(Leases(store, clock, 10.0), clock, logger)
    joining = asyncio.ensure_future(second.join(8, "a", "a", "test", HERE))
    while not joining.done():
        await Leases(store, clock, 10.0).renew(living)
        await clock.jump(1)
    with pytest.raises(Invalid, match="another broker has the id 8"):
        joining.result()
