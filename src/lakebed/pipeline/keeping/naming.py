"""Which files a topic's tables name, and what to believe when a table is not there.

Invariant: a table that ought to be there and is not, as when a catalog was lost, may name all: nothing is deleted.
"""

from __future__ import annotations

from lakebed.errors import NotFound
from lakebed.kernel import View
from lakebed.pipeline.keeping.holding import Held
from lakebed.streams import JobState, job_of
from lakebed.tables import Kind, TableFormat, TableRef, TableSet


async def named_by_tables(tables: TableSet, held: Held, view: View) -> frozenset[str] | None:
    """Every file that a state of the topic's tables names; None when that cannot be told."""
    named: set[str] = set()
    for ref in held.refs:
        found = [await _named(each, ref) for each in tables.formats]
        there = [files for files in found if files is not None]
        if there and len(there) < len(found):
            return None
        if not there and ref.kind is Kind.ROWS and _was_settled(view, held):
            return None
        named.update(*there)
    return frozenset(named)


async def _named(table: TableFormat, ref: TableRef) -> frozenset[str] | None:
    try:
        return await table.named(ref)
    except NotFound:
        return None


def _was_settled(view: View, held: Held) -> bool:
    """Whether a job has come so far that there are tables."""
    job = job_of(view, held.id)
    return job is not None and (job.sequence > 1 or job.state is not JobState.CREATED)
