"""A change held against what a table has: which files go in, which go out.

Invariant: a change is made whole or refused. A library would remove a file that is not there without a word, and the rows that
replace it would be there twice.
"""

from __future__ import annotations

from collections.abc import Set

from lakebed.errors import Conflict
from lakebed.tables.port import Change


def difference(change: Change, present: Set[str], table: str) -> tuple[list[str], list[str]]:
    """Paths to add and paths to remove, in order; `present` may be empty for a change that only adds."""
    wanted = {file.path for file in change.added}
    new, gone = wanted, set(change.removed)
    if change.if_there:
        gone &= present
    if change.exactly:
        new, gone = wanted - present, set(present) - wanted - change.kept
    if disputed := sorted(gone - present) or sorted(new & present):
        more = f" and {len(disputed) - 1} more" if len(disputed) > 1 else ""
        raise Conflict(
            f"{table} and the change do not agree about {disputed[0]}{more}",
            "Restore the table to what the stream holds, then repeat the job",
        )
    return sorted(new), sorted(gone)


def needs_present(change: Change) -> bool:
    """Whether the table's files must be known; what only adds is protected by its job's number."""
    return change.exactly or bool(change.removed)
