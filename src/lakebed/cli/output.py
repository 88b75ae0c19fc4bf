"""Where answers go: standard output for results, standard error for everything else; JSON when asked for."""

from __future__ import annotations

import os
import sys

import click
import msgspec

from lakebed.cli.failure import Failure


class Output:
    """How this call of a command answers."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json

    def text(self, text: str) -> None:
        """Lines for a person."""
        click.echo(text, nl=not text.endswith("\n"))

    def document(self, value: object) -> None:
        """One JSON document, indented; read by people too."""
        click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())

    def line(self, value: object) -> None:
        """One JSON document on one line, for answers that are a sequence."""
        click.echo(msgspec.json.encode(value).decode())

    def failure(self, failure: Failure) -> None:
        """Why there is no answer."""
        click.echo(msgspec.json.encode(failure).decode() if self.as_json else failure.line(), err=True)

    def abandon(self) -> None:
        """The reader has gone (`| head`): let the interpreter's last flush fail silently."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
