"""The `lakebed` command: parse, call, print. Nothing is decided here."""

from lakebed.cli.commands import main

__all__ = ["main"]
