"""`lakebed up`: everything in one process, on a folder."""

from __future__ import annotations

import click

from lakebed.cli.options import Call, Command, common_options


@click.command(
    "up",
    cls=Command,
    examples=[
        ("lakebed up", "A broker on ./lakebed-data, Kafka on 127.0.0.1:9092"),
        ("lakebed up --root /tmp/r --kafka 127.0.0.1:0 --http 127.0.0.1:0", "Ports the system picks, told when ready"),
    ],
)
@click.option("--kafka", metavar="HOST:PORT", help="Where Kafka clients connect.  [default: kafka.listen]")
@click.option("--http", metavar="HOST:PORT", help="Where HTTP clients connect.  [default: http.listen]")
@common_options
def command(call: Call, kafka: str | None, http: str | None) -> None:
    """Run a broker until it is told to stop. Prints one line when clients may come."""
    from lakebed.app import run_broker

    call.override("kafka.listen", kafka)
    call.override("http.listen", http)
    run_broker(call.settings, lambda ready: call.output.text(f"ready kafka={ready.kafka} http={ready.http}"))
