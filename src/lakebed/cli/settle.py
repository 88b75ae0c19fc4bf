"""`lakebed settle`: make tables of topics, once or again and again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

import click

from lakebed.cli.options import Call, Command, common_options
from lakebed.cli.settle_progress import listener
from lakebed.clock import within
from lakebed.errors import Invalid
from lakebed.observe import Logs
from lakebed.streams import has_jobs, opened_root

if TYPE_CHECKING:
    from lakebed.pipeline import Keeper, Settler, Tell
    from lakebed.streams import OpenRoot
    from lakebed.tables import TableSet

_CHILD_NICENESS = 5
"""Beside a broker, clients come first."""


@click.command(
    "settle",
    cls=Command,
    examples=[
        ("lakebed settle --once", "Everything that is committed now becomes Parquet, in both tables"),
        ("lakebed settle --every 10s --topic orders", "One topic, as fresh as ten seconds"),
    ],
)
@click.option("--once", is_flag=True, help="Settle what is there, wait for others who do, clean up, and leave.")
@click.option("--every", metavar="TIME", help="How often a topic's turn comes.  [default: settle.every]")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Only this topic; may be repeated.")
@click.option("--child", is_flag=True, hidden=True, help="Stop when standard input ends.")
@common_options
def command(call: Call, once: bool, every: str | None, topics: tuple[str, ...], child: bool) -> None:
    """Settle topics into Iceberg and Delta tables until told to stop."""
    if once and every:
        raise click.UsageError("--once and --every exclude each other")
    call.override("settle.every", every)
    if not call.settings.tables.enabled:
        raise Invalid("tables are switched off", "Set tables.enabled: true")
    asyncio.run(_run(call, once, frozenset(topics), child))


async def _run(call: Call, once: bool, topics: frozenset[str], child: bool) -> None:
    from lakebed.pipeline import Rounds

    stop = _told_to_stop(child)
    settings = call.settings
    logs = Logs(settings.logging.level, settings.logging.format)
    with listener(call, logs, quiet=child) as tell:
        async with opened_root(settings) as root:
            tools = _Tools(root, tell, stop)
            rounds = Rounds(root, lambda: tools.settler, tell, only=topics, stop=stop)
            try:
                if once:
                    await rounds.once()
                    await _keep_once(root, tools, logs, topics, stop)
                else:
                    await _first_to_fail(rounds.forever(settings.settle.every_s), _keep(root, tools, logs, stop))
            finally:
                await tools.close()


def _told_to_stop(child: bool) -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if child:
        os.nice(_CHILD_NICENESS)
        loop.add_reader(sys.stdin.fileno(), stop.set)
    return stop


async def _keep(root: OpenRoot, tools: _Tools, logs: Logs, stop: asyncio.Event) -> None:
    """Look after settled data, once there is some: what does it takes seconds to load."""
    while not stop.is_set() and not any(has_jobs(log.current) for log in root.domains):
        with suppress(TimeoutError):
            await within(root.settings.streams.retention_interval_s, stop.wait())
    if not stop.is_set():
        from lakebed.pipeline import KeepingRounds

        await KeepingRounds(root, lambda: tools.keeper, log=logs.logger("keeping")).forever(stop)


async def _keep_once(root: OpenRoot, tools: _Tools, logs: Logs, topics: frozenset[str], stop: asyncio.Event) -> None:
    """Let go of what is over, once: a root that is only ever settled by calls has nobody else who would."""
    if stop.is_set() or not any([has_jobs(await log.refresh()) for log in root.domains]):
        return
    from lakebed.pipeline import KeepingRounds

    await KeepingRounds(root, lambda: tools.keeper, log=logs.logger("keeping")).once(only=topics)


async def _first_to_fail(*work: Coroutine[None, None, None]) -> None:
    """Until all have ended; what one of them raises ends the others and is raised here."""
    tasks = [asyncio.get_running_loop().create_task(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Tools:
    """Spark and the tables, opened when the first topic needs them."""

    def __init__(self, root: OpenRoot, tell: Tell, stop: asyncio.Event) -> None:
        self._root, self._tell, self._stop = root, tell, stop

    @cached_property
    def tables(self) -> TableSet:
        from lakebed.pipeline import open_tables

        return open_tables(self._root)

    @cached_property
    def keeper(self) -> Keeper:
        from lakebed.pipeline import Keeper

        return Keeper(self._root, self.tables)

    @cached_property
    def settler(self) -> Settler:
        from lakebed.pipeline import Settler, SparkRunner

        runner = SparkRunner(self._root.settings)
        return Settler(self._root, self.tables, runner, self._tell, self._stop)

    async def close(self) -> None:
        if "settler" in self.__dict__:
            await self.settler.close()
        elif "tables" in self.__dict__:
            await self.tables.close()
