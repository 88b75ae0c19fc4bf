"""The group of all commands. A command's module is imported when it is called, so that help is instant.

`COMMANDS` is the only list of commands; a test holds its texts against the commands themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from lakebed import __version__
from lakebed.cli.failure import describe, exit_code
from lakebed.cli.output import Output
from lakebed.errors import EXIT_DONE, EXIT_FAILED, EXIT_USAGE, LakebedError

COMMANDS = {
    "up": "Run a broker and a settler until told to stop.",
    "broker": "Run brokers until they are told to stop.",
    "topics": "Create, look at, change and delete topics.",
    "groups": "Look at consumer groups and their lag, move their offsets, delete them.",
    "produce": "Send the lines of standard input to a topic, each as one record.",
    "consume": "Print the records of a topic: their values, or everything as JSON.",
    "settle": "Settle topics into Iceberg and Delta tables until told to stop.",
    "sql": "Ask topics and their tables in SQL.",
    "fsck": "Check that index, tables and stored files agree; leave with 1 when they do not.",
    "demo": "See a commit log, a broker and its tables at work, in a scratch folder.",
    "log": "Look inside a commit log.",
    "config": "Look at the configuration.",
}


class LazyGroup(click.Group):
    """Knows its commands by name; each lives in the module of that name, as `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command = import_module(f"lakebed.cli.{name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Every command takes --help and shows examples there.",
)
@click.version_option(__version__, prog_name="lakebed", message="%(prog)s %(version)s")
def lakebed() -> None:
    """A Kafka-compatible event store on object storage whose topics are lake tables."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and leave with its exit code: 0 done, 1 failed, 2 asked wrongly."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. Errors made on purpose are told in one line, others keep their traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    output = Output(as_json="--json" in words)
    try:
        outcome = lakebed.main(words, prog_name="lakebed", standalone_mode=False, obj=output)
    except click.exceptions.NoArgsIsHelpError as question:
        click.echo(question.format_message(), err=True)
        return EXIT_USAGE
    except BrokenPipeError:
        output.abandon()
        return EXIT_FAILED
    except (LakebedError, click.ClickException, click.Abort, OSError) as error:
        output.failure(describe(error))
        return exit_code(error)
    return outcome if isinstance(outcome, int) else EXIT_DONE
