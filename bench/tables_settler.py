"""A settler as `lakebed settle` runs it, that settles a topic when told to.

`python -m bench.tables_settler ROOT MASTER` reads topic names from standard input and answers each with a line when everything in
that topic is settled. The first topic is for warming up.
"""

from __future__ import annotations

import asyncio
import sys

from lakebed.config import Settings, SparkSettings
from lakebed.pipeline import Event, Rounds, Settler, SparkRunner, open_tables
from lakebed.streams import opened_root


async def main() -> None:
    settings = Settings(root=sys.argv[1], spark=SparkSettings(master=sys.argv[2]))
    async with opened_root(settings) as root:
        settler = Settler(root, open_tables(root), SparkRunner(settings), _quiet)
        _say("ready")
        while line := await asyncio.to_thread(sys.stdin.readline):
            await Rounds(root, lambda: settler, _quiet, only=frozenset({line.strip()})).once()
            _say("done")
        await settler.close()


def _quiet(event: Event) -> None:
    if event.problem:
        sys.stderr.write(f"{event}\n")


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
