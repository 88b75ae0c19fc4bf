"""Every key that topics and streams have in the logs, spelled once.

Stream ids are unique in a root: a counter of the domain's log, then the domain in the lowest byte.
"""

from __future__ import annotations

from hashlib import sha256
from uuid import UUID

TOPIC = "topic/"
TOPIC_ID = "topic_id/"
TOPIC_DELETING = "topic_deleting/"
TOPIC_FLOOR = "topic_floor"
PRODUCER_IDS = "producer_ids"

STREAM = "stream/"
STREAM_COUNT = "stream_count"
OPENING = "stream_opening/"
PURGE = "stream_purge/"
LOG_START = "log_start/"
PARQUET_GONE = "parquet_gone/"
SINK = "sink/"
TABLES_ORPHANED = "tables_orphaned/"
TABLES_TRIMMED = "tables_trimmed/"
PRODUCER_MARKS = "producer_marks"

DOMAINS_MAX = 256


def domain_of(topic_id: UUID, domains: int) -> int:
    """The domain of a topic, for ever: its first hash bytes modulo the number of domains."""
    return int.from_bytes(sha256(topic_id.bytes).digest()[:8], "big") % domains


def stream_id(number: int, domain: int) -> int:
    """The id of the `number`-th stream of a domain."""
    return number * DOMAINS_MAX + domain


def stream_domain(stream: int) -> int:
    """The domain a stream belongs to."""
    return stream % DOMAINS_MAX


def stream_key(stream: int) -> str:
    """There while the stream is open."""
    return f"stream/{stream:016x}"


def log_start_key(stream: int) -> str:
    """Where the log begins when that is within an entry."""
    return f"log_start/{stream:016x}"


def behind(prefix: str) -> str:
    """The first key that sorts behind all that begin with `prefix`."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
