"""How soon after its acknowledgement a record is in the tables, and in the sink of a Spark stream."""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy.exc import SQLAlchemyError
from tests.services.processes import running

from bench.peers import lakebed
from bench.report import Figure, with_worst
from bench.tables_programs import program

TOPIC, EVERY = "fresh", "5s"
_RATE_PER_S, _LOOK_S = 20, 0.1
_PATIENCE_S = 120.0
_WARM_S = 10.0
"""The first batches of a stream are slow."""


@dataclass
class Ticker:
    """Records at an even pace into one partition, and when each was acknowledged."""

    bootstrap: str
    acked_s: dict[int, float] = field(default_factory=dict)
    _stopping: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def ticking(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join(_PATIENCE_S)

    def _run(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0, "log_level": 0})

        def told(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            self.acked_s[message.offset()] = time.time()

        next_s = time.monotonic()
        while not self._stopping.is_set():
            producer.produce(TOPIC, b"tick" * 50, on_delivery=told)
            next_s += 1 / _RATE_PER_S
            while (left_s := next_s - time.monotonic()) > 0:
                producer.poll(left_s)  # it returns at once when it has told of an acknowledgement
        producer.flush(_PATIENCE_S)


def table_visibility(folder: Path, seconds: float) -> list[Figure]:
    """From acknowledgement to the row in both tables, with a settler that runs every 5 s."""
    with lakebed(folder) as broker:
        broker.create_topic(TOPIC, 1)
        ticker, root = Ticker(broker.bootstrap), folder / "lakebed" / "root"
        command = [sys.executable, "-m", "lakebed", "settle", "--every", EVERY, "--root", str(root)]
        local = {"LAKEBED__SPARK__MASTER": "local[2]"}
        with ticker.ticking(), running("settler", command, folder / "settler", lambda: True, local):
            looks = {"iceberg": _iceberg_rows(root), "delta": _delta_rows(root)}
            _await(lambda: all(look() > 0 for look in looks.values()))
            seen = _watch(looks, seconds)
    figures = []
    for name, sights in seen.items():
        lags = _lags(ticker.acked_s, sights)
        commits = len({rows for _, rows in sights}) - 1
        told = f"median {statistics.median(lags):.1f} s, of {len(lags)} records; settle --every {EVERY} made "
        told += f"{commits} commits in {seconds:.0f} s"
        figures.append(Figure(f"table_visibility_p99_s_{name}", _percentile(lags, 0.99), told))
    return with_worst("table_visibility_p99_s", figures, 10.0)


def stream_latency(folder: Path, seconds: float) -> Figure:
    """From acknowledgement to the sink of a `readStream`, with Spark's own pace."""
    with lakebed(folder) as broker:
        broker.create_topic(TOPIC, 1)
        ticker, place = Ticker(broker.bootstrap), folder / "lakebed" / "root"
        with (
            program("bench.tables_stream", place, TOPIC, folder / "checkpoint", folder=folder) as sink,
            ticker.ticking(),
        ):
            sights = [_sight(sink.heard())]
            while sights[-1][0] < sights[0][0] + seconds + _WARM_S:
                sights.append(_sight(sink.heard()))
    warm = [sight for sight in sights if sight[0] >= sights[0][0] + _WARM_S]
    lags = _lags(ticker.acked_s, warm)
    told = f"p99 {_percentile(lags, 0.99):.2f} s, of {len(lags)} records in {len(warm)} batches"
    return Figure("stream_source_p50_s", statistics.median(lags), told, 2.0, at_least=False)


def _sight(line: str) -> tuple[float, int]:
    end, seen_s = line.split()
    return float(seen_s), int(end)


def _lags(acked_s: dict[int, float], sights: list[tuple[float, int]]) -> list[float]:
    """Of every record acknowledged after the first sight and shown by a later one: how long that took."""
    (first_s, shown), lags = sights[0], []
    for seen_s, end in sights[1:]:
        fresh = [acked_s[offset] for offset in range(shown, end) if acked_s.get(offset, 0) >= first_s]
        lags += [max(0.0, seen_s - at_s) for at_s in fresh]
        shown = max(shown, end)
    return lags


def _watch(looks: dict[str, Callable[[], int]], seconds: float) -> dict[str, list[tuple[float, int]]]:
    seen: dict[str, list[tuple[float, int]]] = {name: [] for name in looks}
    until_s = time.time() + seconds
    while time.time() < until_s:
        for name, look in looks.items():
            rows = look()
            seen[name].append((time.time(), rows))
        time.sleep(_LOOK_S)
    return seen


def _iceberg_rows(root: Path) -> Callable[[], int]:
    def look() -> int:
        try:
            catalog = SqlCatalog("lakebed", uri=f"sqlite:///{root}/catalog.sqlite")
            snapshot = catalog.load_table(("lakebed", TOPIC)).current_snapshot()
        except (NoSuchTableError, SQLAlchemyError):
            return 0
        return 0 if snapshot is None or snapshot.summary is None else int(snapshot.summary["total-records"] or 0)

    return look


def _delta_rows(root: Path) -> Callable[[], int]:
    def look() -> int:
        folders = list((root / "delta").glob(f"{TOPIC}-*"))
        try:
            table = DeltaTable(str(folders[0])) if folders else None
        except TableNotFoundError:
            return 0
        return 0 if table is None else sum(table.get_add_actions(flatten=True).column("num_records").to_pylist())

    return look


def _await(ready: Callable[[], bool]) -> None:
    until_s = time.monotonic() + _PATIENCE_S
    while not ready():
        if time.monotonic() > until_s:
            raise RuntimeError(f"nothing was settled in {_PATIENCE_S} s")
        time.sleep(_LOOK_S)


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
