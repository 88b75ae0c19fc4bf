"""Write-ahead objects: their format, how they are written, read and collected."""

from lakebed.wal.budget import Budget
from lakebed.wal.collect import FLOOR_KEY, Collector, wal_floor
from lakebed.wal.flusher import Flusher
from lakebed.wal.format import Chunk, Layout, ObjectHeader, batches_of, encode, parse, parse_header, parse_index, sealed
from lakebed.wal.measures import WalMetrics
from lakebed.wal.outcomes import Appended, Piece, Publish, Verdict, Verdicts, Written, stretches
from lakebed.wal.paths import DEFAULT_ZONE, born_ms, domain_prefix, id_of, object_path
from lakebed.wal.reader import EntryMap, RangeCache, WalReader
from lakebed.wal.runs import Run, Slice
from lakebed.wal.tail import TailCache

__all__ = [
    "DEFAULT_ZONE",
    "FLOOR_KEY",
    "Appended",
    "Budget",
    "Chunk",
    "Collector",
    "EntryMap",
    "Flusher",
    "Layout",
    "ObjectHeader",
    "Piece",
    "Publish",
    "RangeCache",
    "Run",
    "Slice",
    "TailCache",
    "Verdict",
    "Verdicts",
    "WalMetrics",
    "WalReader",
    "Written",
    "batches_of",
    "born_ms",
    "domain_prefix",
    "encode",
    "id_of",
    "object_path",
    "parse",
    "parse_header",
    "parse_index",
    "sealed",
    "stretches",
    "wal_floor",
]
