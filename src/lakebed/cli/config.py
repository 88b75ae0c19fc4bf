"""`lakebed config`: look at the configuration."""

from __future__ import annotations

import click

from lakebed.cli.options import Call, Command, common_options
from lakebed.config import Loaded, Settings, default_file_text, effective_json, effective_text


@click.group("config")
def command() -> None:
    """Look at the configuration."""


@command.command(
    "show",
    cls=Command,
    examples=[
        ("lakebed config show --origin", "What is in force, and which file line or variable set it"),
        ("lakebed config show --defaults > lakebed.yaml", "Start from a file that explains every key"),
        ("LAKEBED__KERNEL__RETENTION=14d lakebed config show --json", "Try a variable"),
    ],
)
@click.option("--defaults", is_flag=True, help="Show the defaults instead, with what each key means.")
@click.option("--origin", is_flag=True, help="Say where each value comes from.")
@common_options
def show(call: Call, defaults: bool, origin: bool) -> None:
    """Show the configuration in force. Secrets stay hidden."""
    loaded = Loaded(Settings(), {}) if defaults else call.loaded
    if call.output.as_json:
        call.output.document(effective_json(loaded, with_origins=origin))
    elif defaults:
        call.output.text(default_file_text())
    else:
        call.output.text(effective_text(loaded, with_origins=origin))
