"""What went wrong, in one line, and the exit code that says so."""

from __future__ import annotations

import click
import msgspec

from lakebed.errors import EXIT_FAILED, EXIT_USAGE, Invalid, LakebedError

EXIT_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (Invalid, EXIT_USAGE),
    (click.UsageError, EXIT_USAGE),
    (LakebedError, EXIT_FAILED),
    (click.ClickException, EXIT_FAILED),
    (click.Abort, EXIT_FAILED),
    (OSError, EXIT_FAILED),
)
"""The first row that fits decides."""


class Failure(msgspec.Struct, frozen=True):
    """What a person or a program is told about an error."""

    error: str
    problem: str
    remedy: str = ""

    def line(self) -> str:
        return f"error: {self.problem}. {self.remedy}" if self.remedy else f"error: {self.problem}"


def exit_code(error: BaseException) -> int:
    """1 when it failed, 2 when it was asked wrongly."""
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), EXIT_FAILED)


def describe(error: BaseException) -> Failure:
    """The same three facts whatever the error was."""
    kind = type(error).__name__
    if isinstance(error, LakebedError):
        return Failure(kind, error.problem, error.remedy)
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "lakebed"
        return Failure("Usage", error.format_message().rstrip("."), f"See {path} --help")
    if isinstance(error, click.Abort):
        return Failure("Interrupted", "interrupted")
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return Failure(kind, f"{where}{error.strerror or error}")
    return Failure(kind, str(error))
