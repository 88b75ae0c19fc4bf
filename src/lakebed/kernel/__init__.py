"""The kernel: a commit log on any store that can create a name only if it is absent. It knows nothing of Kafka."""

from lakebed.kernel.blocks import FILE_TYPES, Block, IndexEntry
from lakebed.kernel.cleanup import CleanUp
from lakebed.kernel.commit_log import CommitLog
from lakebed.kernel.faulty_store import FaultyLogStore
from lakebed.kernel.fence import check_fence, fence_token, take_fence
from lakebed.kernel.file_store import FileLogStore
from lakebed.kernel.identity import Floor, Identity, floor_of, oldest_version
from lakebed.kernel.keys import Entry, KeysPart
from lakebed.kernel.object_store import ObjectLogStore
from lakebed.kernel.operations import Add, Commit, Delete, Forget, ForgetStreams, Operation, Put, Puts, Remove
from lakebed.kernel.oxia_store import OxiaLogStore
from lakebed.kernel.parts import Frozen, Part, PartDraft, Registry
from lakebed.kernel.paths import CLUSTER_LOG, LAKE_LOG, ROOT_FILE, domain_log, log_prefix
from lakebed.kernel.results import CommitResult, Committed, Conflict, Decision, Unknown
from lakebed.kernel.root import Root, open_root
from lakebed.kernel.sortedmap import ABSENT, Absent, SortedMap
from lakebed.kernel.state import KERNEL_PARTS, Snapshot, View
from lakebed.kernel.store import NO_VERSION, LogStore, Version
from lakebed.kernel.stream import Stream
from lakebed.kernel.streams import StreamsPart
from lakebed.kernel.verification import Finding, Verification, verify

__all__ = [
    "ABSENT",
    "CLUSTER_LOG",
    "FILE_TYPES",
    "KERNEL_PARTS",
    "LAKE_LOG",
    "NO_VERSION",
    "ROOT_FILE",
    "Absent",
    "Add",
    "Block",
    "CleanUp",
    "Commit",
    "CommitLog",
    "CommitResult",
    "Committed",
    "Conflict",
    "Decision",
    "Delete",
    "Entry",
    "FaultyLogStore",
    "FileLogStore",
    "Finding",
    "Floor",
    "Forget",
    "ForgetStreams",
    "Frozen",
    "Identity",
    "IndexEntry",
    "KeysPart",
    "LogStore",
    "ObjectLogStore",
    "Operation",
    "OxiaLogStore",
    "Part",
    "PartDraft",
    "Put",
    "Puts",
    "Registry",
    "Remove",
    "Root",
    "Snapshot",
    "SortedMap",
    "Stream",
    "StreamsPart",
    "Unknown",
    "Verification",
    "Version",
    "View",
    "check_fence",
    "domain_log",
    "fence_token",
    "floor_of",
    "log_prefix",
    "oldest_version",
    "open_root",
    "take_fence",
    "verify",
]
