"""What every act of the demo shares: words for people, facts for programs, and the check behind each claim."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from lakebed.cli.output import Output
from lakebed.cli.tables import console
from lakebed.errors import Corrupt


class Stage:
    """Tells the story as it happens, or keeps quiet and collects its facts."""

    def __init__(self, output: Output) -> None:
        self._quiet = output.as_json
        self.facts: dict[str, Any] = {}

    def act(self, title: str) -> None:
        """A new part of the story."""
        self._print(Text(f"\n{title}\n{'=' * len(title)}", style="bold green"))

    def say(self, text: str) -> None:
        """What happens next."""
        self._print(Text(f"\n{text}", style="bold"))

    def quote(self, text: str) -> None:
        """Something as it is stored or answered."""
        self._print(Text(f"  {text}", style="cyan"))

    def show(self, **facts: object) -> None:
        """What was found."""
        self.facts |= facts
        self._print(Text("  " + "   ".join(f"{name.replace('_', ' ')}: {_told(fact)}" for name, fact in facts.items())))

    def _print(self, text: Text) -> None:
        if not self._quiet:
            console().print(text)


def expect(holds: bool, what: str) -> None:
    """Stop the demo when what it is about to claim is not so."""
    if not holds:
        raise Corrupt(f"the demo found that this does not hold: {what}", "Please report it with this output")


def _told(fact: object) -> str:
    return f"{fact:,}" if isinstance(fact, int) else str(fact)
