"""The demo's third act: a topic becomes an Iceberg and a Delta table, and its consumers do not notice."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import msgspec

from lakebed.cli.demo_clients import Client, Seen, best_client
from lakebed.cli.demo_server import Server
from lakebed.cli.demo_stage import Stage, expect
from lakebed.cli.demo_stream import order
from lakebed.clock import Clock
from lakebed.config import load_settings
from lakebed.errors import Unavailable

_TOPIC, _PARTITIONS = "orders", 3
_RECORDS, _LATER = 10_000, 500
_PATIENCE_S = 300.0
_QUERY = f"SELECT count(*) AS orders, count(DISTINCT partition, offset) AS places FROM {_TOPIC}"


class TablesAct:
    """A topic on the folder `root`, settled by a Spark job while its broker runs."""

    def __init__(self, root: Path, stage: Stage, clock: Clock) -> None:
        self._folder, self._root = root, root / "root"
        self._stage, self._clock = stage, clock

    def run(self) -> None:
        """Every claim is checked by reading back."""
        self._stage.act("The tables")
        self._folder.mkdir(parents=True, exist_ok=True)
        with Server(self._root, self._folder / "broker.log") as server:
            client = best_client(server.kafka)
            before = self._produce(client)
            self._settle()
            self._look_inside()
            self._read_again(client, before)
            self._query(client)

    def _produce(self, client: Client) -> list[Seen]:
        self._stage.say(f"Again {_RECORDS:,} orders in {_PARTITIONS} partitions, and a consumer that reads them.")
        client.create_topic(_TOPIC, _PARTITIONS)
        client.produce(_TOPIC, [order(number) for number in range(_RECORDS)], lambda _: False)
        seen = client.read(_TOPIC)
        expect(len(seen) == _RECORDS, "as many records are read as were sent")
        return seen

    def _settle(self) -> None:
        self._stage.say("'lakebed settle --once' starts Spark, which makes Parquet of all that is committed.")
        began_s = self._clock.monotonic_s()
        lines = self._lakebed("settle", "--once").splitlines()
        states = [event["state"] for event in map(msgspec.json.decode, lines) if event.get("event") == "state"]
        expect(states[-1:] == ["DONE"], "the job has come to its end")
        self._stage.show(settled_after_seconds=round(self._clock.monotonic_s() - began_s, 1))
        self._stage.quote(" → ".join(states))

    def _look_inside(self) -> None:
        self._stage.say("The same files are an Iceberg table, a Delta table and the old part of the topic.")
        iceberg, delta = asyncio.run(self._table_files())
        expect(iceberg == delta, "both tables are made of the same files")
        rows = sum(_rows(self._root / path) for path in iceberg)
        expect(rows == _RECORDS, "the tables hold every record once")
        self._stage.show(files_in_iceberg=len(iceberg), files_in_delta=len(delta), rows=rows)

    async def _table_files(self) -> tuple[frozenset[str], frozenset[str]]:
        from lakebed.pipeline import open_tables
        from lakebed.streams import opened_root
        from lakebed.tables import TableRef

        async with opened_root(load_settings(None, {}, {"root": str(self._root)}).settings) as root:
            topic, tables = await root.topic(_TOPIC), open_tables(root)
            ref = TableRef(topic.name, topic.id)
            try:
                return await tables.iceberg.files(ref), await tables.delta.files(ref)
            finally:
                await tables.close()

    def _read_again(self, client: Client, before: list[Seen]) -> None:
        self._stage.say("The consumer reads everything again. Now its records come out of Parquet.")
        after = client.read(_TOPIC)
        expect(sorted(after) == sorted(before), "a consumer cannot tell that the topic was settled")
        self._stage.show(read_from_parquet=len(after), differences=0)

    def _query(self, client: Client) -> None:
        self._stage.say(
            f"{_LATER} more orders arrive. Spark SQL sees them at once: settled Parquet and the unsettled tail are one."
        )
        client.produce(_TOPIC, [order(number) for number in range(_RECORDS, _RECORDS + _LATER)], lambda _: False)
        self._stage.quote(f"lakebed sql '{_QUERY}'")
        row = msgspec.json.decode(self._lakebed("sql", _QUERY))
        total = _RECORDS + _LATER
        expect((row["orders"], row["places"]) == (total, total), "a query sees every acknowledged record once")
        self._stage.show(orders=row["orders"])

    def _lakebed(self, *words: str) -> str:
        """What a command of this program prints, in JSON."""
        line = [sys.executable, "-m", "lakebed", *words, "--root", str(self._root), "--json"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LAKEBED_")}
        done = subprocess.run(line, capture_output=True, text=True, timeout=_PATIENCE_S, env=kept, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise Unavailable(f"'lakebed {words[0]}' failed: {last}", "Run it by hand to see why")
        return done.stdout


def _rows(path: Path) -> int:
    from pyarrow.parquet import read_metadata  # type: ignore[import-untyped]

    return int(read_metadata(path).num_rows)
