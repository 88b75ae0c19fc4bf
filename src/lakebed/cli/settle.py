"""`lakebed settle`: make tables of topics, once or again and again."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING

import click

from lakebed.cli.options import Call, Command, common_options
from lakebed.cli.settle_progress import listener
from lakebed.errors import Invalid

if TYPE_CHECKING:
    from lakebed.pipeline import Settler, Tell
    from lakebed.streams import OpenRoot


@click.command(
    "settle",
    cls=Command,
    examples=[
        ("lakebed settle --once", "Everything that is committed now becomes Parquet, in both tables"),
        ("lakebed settle --every 10s --topic orders", "One topic, as fresh as ten seconds"),
    ],
)
@click.option("--once", is_flag=True, help="Settle what is there, wait for others who do, and leave.")
@click.option("--every", metavar="TIME", help="How often a topic's turn comes.  [default: settle.every]")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Only this topic; may be repeated.")
@click.option("--child", is_flag=True, hidden=True, help="Stop when standard input ends.")
@common_options
def command(call: Call, once: bool, every: str | None, topics: tuple[str, ...], child: bool) -> None:
    """Settle topics into Iceberg and Delta tables until told to stop."""
    if once and every:
        raise click.UsageError("--once and --every exclude each other")
    call.override("settle.every", every)
    settings = call.settings
    if not settings.tables.enabled:
        raise Invalid("tables are switched off", "Set tables.enabled: true")
    asyncio.run(_run(call, once, frozenset(topics), child))


async def _run(call: Call, once: bool, topics: frozenset[str], child: bool) -> None:
    from lakebed.pipeline import Rounds
    from lakebed.streams import opened_root

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if child:
        loop.add_reader(sys.stdin.fileno(), stop.set)
    settings = call.settings
    with listener(call, quiet=child) as tell:
        async with opened_root(settings) as root:
            rounds = Rounds(root, lambda: _settler(root, tell, stop), tell, only=topics, stop=stop)
            try:
                await (rounds.once() if once else rounds.forever(settings.settle.every_s))
            finally:
                await rounds.close()


def _settler(root: OpenRoot, tell: Tell, stop: asyncio.Event) -> Settler:
    from lakebed.pipeline import Settler, SparkRunner, open_tables

    return Settler(root, open_tables(root), SparkRunner(root.settings), tell, stop)
