"""The names under which Lakebed writes into tables whose they are and what was done to them; the same in both formats.

Invariant: whatever Lakebed commits to a table carries `lakebed.root_id`; what does not is someone else's.
"""

from __future__ import annotations

from lakebed.tables.port import TableRef
from lakebed.tables.schema import SCHEMA_VERSION

TOPIC, TOPIC_ID, KIND = "lakebed.topic", "lakebed.topic_id", "lakebed.kind"
ROOT, ROOT_ID, VERSION = "lakebed.root", "lakebed.root_id", "lakebed.schema_version"
SEQUENCE, JOB, SNAPSHOT = "lakebed.sequence", "lakebed.job", "lakebed.snapshot"
RESTORED = "lakebed.restored"
"""On the commit that undid what others had done: what lies behind it needs no remedy any more."""


def identity(ref: TableRef, root: str, root_id: str) -> dict[str, str]:
    """The properties that say whose a table is."""
    return {
        TOPIC: ref.topic,
        TOPIC_ID: str(ref.topic_id),
        KIND: ref.kind.value,
        ROOT: root,
        ROOT_ID: root_id,
        VERSION: str(SCHEMA_VERSION),
    }
