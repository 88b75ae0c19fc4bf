"""Brokers on stores that refuse, delay, repeat and lose answers: clients notice at most that it takes longer."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from lakebed.app import App
from lakebed.clock import SystemClock
from lakebed.config import Address, HttpSettings, KafkaSettings, LeaseSettings, Seconds, Settings, TopicSettings
from lakebed.kernel import FaultyLogStore, LogStore
from lakebed.objects import Fault, FaultRates, FaultSchedule, FaultyStore, ObjectStore
from tests.clients.test_crashes import PATIENCE_S, Sending, check_history, read_all

RATES = FaultRates(refused=0.03, answer_lost=0.03, lands_later=0.03, repeated=0.03, delayed=0.03, cut_short=0.03)
PARTITIONS = 4
ANY_PORT = Address("127.0.0.1", 0)


class FaultyApp(App):
    """A broker whose object store or log store fails by a schedule, once it has started."""

    def __init__(self, settings: Settings, seed: int, faulty: str) -> None:
        super().__init__(settings, SystemClock())
        self.schedule = FaultSchedule(seed, RATES)
        self.schedule.calm()
        self._faulty, self._seed = faulty, seed

    def begin(self) -> None:
        """From here on things go wrong."""
        self.schedule._written = None

    def _open_objects(self) -> ObjectStore:
        objects = super()._open_objects()
        return FaultyStore(objects, self.schedule) if self._faulty == "objects" else objects

    def _log_store(self, objects: ObjectStore, name: str) -> LogStore:
        inner = super()._log_store(objects, name)
        return FaultyLogStore(inner, self.schedule) if self._faulty == "log" else inner


@pytest.mark.parametrize("faulty", ["objects", "log"])
@pytest.mark.parametrize("seed", [1, 2])
async def test_faults_of_a_store_lose_and_repeat_nothing(tmp_path: Path, faulty: str, seed: int) -> None:
    settings = Settings(
        root=str(tmp_path / "root"),
        kafka=KafkaSettings(listen=ANY_PORT, drain_timeout_s=Seconds(5)),
        http=HttpSettings(listen=ANY_PORT),
        leases=LeaseSettings(ttl_s=Seconds(2)),
        topics=TopicSettings(partitions=PARTITIONS),
    )
    async with AsyncExitStack() as stack:
        apps = [FaultyApp(settings, seed * 10 + number, faulty) for number in range(2)]
        addresses = []
        for app in apps:
            stack.push_async_callback(app.stop)
            addresses.append(str((await app.start()).kafka))
        senders = [Sending(name, ",".join(addresses), "t") for name in ("a", "b")]
        for app in apps:
            app.begin()
        for sender in senders:
            sender.start()
        await asyncio.gather(*(asyncio.to_thread(sender.wait_for, 200) for sender in senders))
        await asyncio.gather(*(asyncio.to_thread(sender.finish) for sender in senders))
        faults = [drawn.fault for app in apps for drawn in app.schedule.history if drawn.fault is not Fault.NONE]
        assert faults, "nothing went wrong"
        for app in apps:
            app.schedule.calm()
        assert [sender.failures for sender in senders] == [[], []]
        for address in addresses:
            seen = await asyncio.wait_for(asyncio.to_thread(read_all, address, "t", PARTITIONS), PATIENCE_S)
            check_history(senders, seen)
