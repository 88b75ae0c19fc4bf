"""`lakebed broker`: brokers only, one or several processes."""

from __future__ import annotations

import sys

import click

from lakebed.app import Ready, run_broker, run_workers
from lakebed.cli.options import Call, Command, common_options
from lakebed.config import Address


@click.command(
    "broker",
    cls=Command,
    examples=[
        ("lakebed broker --workers 4", "Four processes behind 127.0.0.1:9092"),
        ("lakebed broker --root s3://bucket/prefix --kafka 127.0.0.1:9092", "One of many brokers on a bucket"),
    ],
)
@click.option("--workers", type=click.IntRange(1, 1024), default=1, show_default=True, help="How many processes.")
@click.option("--kafka", metavar="HOST:PORT", help="Where Kafka clients connect.  [default: kafka.listen]")
@click.option("--http", metavar="HOST:PORT", help="Where HTTP clients connect.  [default: http.listen]")
@click.option("--worker", type=int, hidden=True, help="Be this worker of a supervisor.")
@click.option("--id", "number", type=click.IntRange(0), help="The broker's number.  [default: broker.id]")
@common_options
def command(
    call: Call, workers: int, kafka: str | None, http: str | None, worker: int | None, number: int | None
) -> None:
    """Run brokers until they are told to stop. Prints one line when clients may come."""
    call.override("kafka.listen", kafka)
    call.override("http.listen", http)
    call.override("broker.id", None if number is None else str(number))
    settings = call.settings

    def announce(ready: Ready) -> None:
        call.output.text(f"ready kafka={ready.kafka} http={ready.http}")

    if workers == 1:
        run_broker(settings, announce, worker=worker is not None)
    else:
        run_workers(settings, announce, workers, lambda bootstrap: _Worker(call, bootstrap))


class _Worker:
    """The command line of each worker: this command's own sources of settings, and a port of its own."""

    def __init__(self, call: Call, bootstrap: Address) -> None:
        self._call, self._bootstrap = call, bootstrap

    def __call__(self, number: int) -> list[str]:
        line = [sys.executable, "-m", "lakebed", "broker", "--worker", str(number)]
        line += ["--root", self._call.settings.root]
        line += ["--kafka", str(self._bootstrap), "--http", "127.0.0.1:0"]
        if self._call.config is not None:
            line += ["--config", str(self._call.config)]
        if self._call.settings.broker.id is not None:
            line += ["--id", str(self._call.settings.broker.id + number)]
        return line
