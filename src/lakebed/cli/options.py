"""Options that every command has, defined once, and the shape of a command's help."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from lakebed.cli.output import Output
from lakebed.config import Loaded, Settings, load_settings

CONFIG_VARIABLE = "LAKEBED_CONFIG"


class Call:
    """What the common options came to. Settings are read when first asked for."""

    def __init__(self, output: Output, root: str | None, config: Path | None) -> None:
        self.output = output
        self.config = config
        self._overrides = {"root": root} if root is not None else {}

    def override(self, path: str, text: str | None) -> None:
        """Let an option of the command line win over every other source; before settings are first asked for."""
        if text is not None:
            self._overrides[path] = text

    @functools.cached_property
    def loaded(self) -> Loaded:
        return load_settings(self.config, os.environ, self._overrides)

    @property
    def settings(self) -> Settings:
        return self.loaded.settings


class Command(click.Command):
    """A command whose help ends with examples: pairs of a command line and what it does."""

    def __init__(self, *args: Any, examples: Sequence[tuple[str, str]] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if not self.examples:
            return
        with formatter.section("Examples"):
            for line, meaning in self.examples:
                formatter.write(f"  # {meaning}\n  {line}\n")


def common_options(body: Callable[..., Any]) -> Callable[..., Any]:
    """Add --root, --config and --json; the command gets them as one `Call`, its first argument."""

    @functools.wraps(body)
    @click.pass_obj
    def called(output: Output, /, root: str | None, config: Path | None, **rest: Any) -> Any:
        return body(Call(output, root, config), **rest)

    for option in (json_option, _config_option, _root_option):
        called = option(called)
    return called


_root_option = click.option(
    "--root",
    metavar="DIR|URL",
    help="Folder or bucket that holds everything.  [default: LAKEBED_ROOT or ./lakebed-data]",
)
_config_option = click.option(
    "--config",
    envvar=CONFIG_VARIABLE,
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Configuration file.  [default: LAKEBED_CONFIG or ./lakebed.yaml, where there is one]",
)
json_option = click.option("--json", is_flag=True, expose_value=False, help="Answer in JSON.")
"""`Output` knows of it before the line is parsed, so that mistakes in the line are told in JSON too."""
