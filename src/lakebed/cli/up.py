"""`lakebed up`: everything on a folder: a broker, and a settler in a process of its own."""

from __future__ import annotations

import sys

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
    """Run a broker and a settler until told to stop. Prints one line when clients may come."""
    from lakebed.app import Ready, run_broker

    call.override("kafka.listen", kafka)
    call.override("http.listen", http)

    def announce(ready: Ready) -> None:
        call.output.text(f"ready kafka={ready.kafka} http={ready.http}")

    run_broker(call.settings, announce, settle=_settle(call))


def _settle(call: Call) -> list[str] | None:
    """The settler's command line: this command's own sources of settings. None where nobody could find its tables."""
    settings = call.settings
    if not settings.tables.enabled or settings.root.startswith("memory:"):
        return None
    line = [sys.executable, "-m", "lakebed", "settle", "--child", "--root", settings.root]
    return line if call.config is None else [*line, "--config", str(call.config)]
