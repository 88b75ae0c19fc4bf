"""What an Iceberg table says about itself: whose it is, which job it took last, and who else has written to it.

Invariant: the last job's number, name and snapshot stand in the table's properties, set in the job's own commit: snapshots
expire, properties do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from lakebed.errors import Invalid
from lakebed.tables.marks import (
    JOB,
    KIND,
    RESTORED,
    ROOT,
    ROOT_ID,
    SEQUENCE,
    SNAPSHOT,
    TOPIC_ID,
    VERSION,
    identity,
)
from lakebed.tables.port import ForeignCommit, Job, TableRef
from lakebed.tables.schema import SCHEMA_VERSION, table_schema

_METADATA_VERSIONS_KEPT = "20"


@dataclass(frozen=True, slots=True)
class Head:
    """The last job that the table took."""

    sequence: int
    job_id: str | None
    snapshot_id: int | None


def table_properties(ref: TableRef, root: str, root_id: str) -> dict[str, str]:
    """Everything an Iceberg table of ours is created with."""
    return identity(ref, root, root_id) | {
        "format-version": "2",
        "gc.enabled": "false",  # no engine may delete files that the stream reads
        "commit.retry.num-retries": "0",  # a library that retries by itself would commit a job's files twice
        "commit.manifest-merge.enabled": "true",
        "write.metadata.previous-versions-max": _METADATA_VERSIONS_KEPT,
    }


def is_of(table: Table, ref: TableRef) -> bool:
    """Whether the table is of this very topic, not of an earlier one or of a stranger."""
    return (table.properties.get(TOPIC_ID), table.properties.get(KIND)) == (str(ref.topic_id), ref.kind.value)


def check_identity(table: Table, ref: TableRef, root: str, root_id: str) -> None:
    """`Invalid` when the table belongs to another root, to a newer program, or to this root before it was moved."""
    said = table.properties
    name = ".".join(table.name())
    if said.get(ROOT_ID) != root_id:
        raise Invalid(f"table {name} belongs to root {said.get(ROOT_ID)}", "Give this root a namespace of its own")
    if said.get(VERSION) != str(SCHEMA_VERSION):
        raise Invalid(
            f"table {name} has schema version {said.get(VERSION)}", "Use the program that wrote it or a newer"
        )
    if said.get(ROOT) != root:
        raise Invalid(
            f"table {name} was made for {said.get(ROOT)} and the root is {root}",
            "Open the root by its old address, or drop the table and settle again",
        )
    if table.schema().as_struct() != table_schema(ref.kind).as_struct():
        raise Invalid(f"the columns of table {name} are not ours", "Undo the change of its schema")


def read_head(table: Table) -> Head:
    said = table.properties
    snapshot_id = said.get(SNAPSHOT)
    return Head(int(said.get(SEQUENCE, "0")), said.get(JOB), None if snapshot_id is None else int(snapshot_id))


def head_properties(job: Job, snapshot_id: int) -> dict[str, str]:
    return {SEQUENCE: str(job.sequence), JOB: job.id, SNAPSHOT: str(snapshot_id)}


def snapshot_properties(job: Job, root_id: str, *, restoring: bool = False) -> dict[str, str]:
    said = {SEQUENCE: str(job.sequence), JOB: job.id, ROOT_ID: root_id}
    return said | {RESTORED: "true"} if restoring else said


def free_snapshots(table: Table) -> list[Snapshot]:
    """Those that may be forgotten, oldest first: no branch or tag points at them."""
    protected = {reference.snapshot_id for reference in table.refs().values()}
    free = [snapshot for snapshot in table.snapshots() if snapshot.snapshot_id not in protected]
    return sorted(free, key=lambda snapshot: snapshot.sequence_number or 0)


def surplus_snapshots(table: Table, snapshots_max: int) -> list[int]:
    """What must go so that one more makes at most `snapshots_max`."""
    count = len(table.snapshots()) + 1 - snapshots_max
    return [snapshot.snapshot_id for snapshot in free_snapshots(table)[: max(0, count)]]


def foreign_commits(table: Table) -> tuple[ForeignCommit, ...]:
    """Snapshots behind the current one that are not ours, newest first; and a current one that we had left behind.

    What a restored table has behind it is undone, and told no more.
    """
    metadata = table.metadata
    lineage = list(ancestors_of(metadata.current_snapshot(), metadata))
    since = takewhile(lambda snapshot: not _has_restored(snapshot), lineage)
    found = [_foreign(snapshot) for snapshot in since if not _is_ours(snapshot)]
    expected = read_head(table).snapshot_id
    if expected is not None and expected not in {snapshot.snapshot_id for snapshot in lineage}:
        current = lineage[0].snapshot_id if lineage else 0
        found.insert(0, ForeignCommit(current, "rollback", metadata.last_updated_ms))
    return tuple(found)


def _is_ours(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and snapshot.summary.get(ROOT_ID) is not None


def _has_restored(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and snapshot.summary.get(RESTORED) is not None


def _foreign(snapshot: Snapshot) -> ForeignCommit:
    operation = "unknown" if snapshot.summary is None else snapshot.summary.operation.value
    return ForeignCommit(snapshot.snapshot_id, operation, snapshot.timestamp_ms)
