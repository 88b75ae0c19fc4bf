"""The `lakebed` command: parse, call, print. Nothing is decided here."""

from lakebed.cli.main import main

__all__ = ["main"]
