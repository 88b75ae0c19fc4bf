"""Where tables lie and what they are called: every path and name of the room is spelled here.

Invariant: a folder carries its topic's id, so a topic that is deleted and created again never meets its past; a table's name is
different for every topic and made of what every catalog accepts (small letters, digits, `_`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from lakebed.errors import Invalid
from lakebed.tables.port import Kind, TableRef

CATALOG_FILE = "catalog.sqlite"
DELTA_LOG = "_delta_log"

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PLAIN = re.compile(r"[a-z0-9][a-z0-9_]{0,199}")
_LOOKS_HASHED = re.compile(r".*_[0-9a-f]{8}")
_DEAD_LETTERS_END = "_dead_letters"
_NAME_CHARS_MAX = 180
_ATTEMPT = re.compile(r"[A-Za-z0-9._-]{1,100}")
_DATA_FILE = re.compile(
    r"delta/[^/]+/data/p(?P<partition>\d{5,})/"
    r"(?P<start>\d{20})-(?P<end>\d{20})-(?P<attempt>[A-Za-z0-9._-]{1,100})\.parquet"
)


def delta_folder(ref: TableRef) -> str:
    """`delta/<topic>-<id>`: settled Parquet under `data/`, and Delta's log."""
    return f"delta/{_folder(ref)}"


def delta_log_folder(ref: TableRef) -> str:
    return f"{delta_folder(ref)}/{DELTA_LOG}"


def data_folder(ref: TableRef) -> str:
    """What the paths of a table's Parquet files begin with."""
    return f"{delta_folder(ref)}/data/"


def iceberg_folder(ref: TableRef) -> str:
    """`iceberg/<topic>-<id>`: Iceberg's metadata, where the catalog lets us say."""
    return f"iceberg/{_folder(ref)}"


def data_file(ref: TableRef, partition: int, offset_start: int, offset_end: int, attempt_id: str) -> str:
    """A Parquet file's path. The attempt keeps a zombie's file apart from the winner's."""
    if not _ATTEMPT.fullmatch(attempt_id):
        raise Invalid(f"attempt {attempt_id!r} cannot be part of a path", "Use letters, digits, '.', '_' and '-'")
    return f"{data_folder(ref)}p{partition:05d}/{offset_start:020d}-{offset_end:020d}-{attempt_id}.parquet"


@dataclass(frozen=True, slots=True)
class DataFileName:
    """What a data file's own path says of it."""

    partition: int
    offset_start: int
    offset_end: int
    attempt_id: str


def read_data_file(path: str) -> DataFileName | None:
    """Back from `data_file`; None for a file that Lakebed did not name."""
    found = _DATA_FILE.fullmatch(path)
    if found is None:
        return None
    return DataFileName(int(found["partition"]), int(found["start"]), int(found["end"]), found["attempt"])


def in_delta(ref: TableRef, path: str) -> str:
    """A data file's path as Delta's log spells it: relative to the table."""
    folder = f"{delta_folder(ref)}/"
    if not path.startswith(folder):
        raise Invalid(f"{path} is not below {folder}", "Write a table's files below its folder")
    return path.removeprefix(folder)


def from_delta(ref: TableRef, path: str) -> str:
    """Back from `in_delta`; a foreign writer's absolute path stays as it is."""
    return path if "://" in path else f"{delta_folder(ref)}/{unquote(path)}"


def table_name(ref: TableRef) -> str:
    """What the table is called in a catalog: the topic's name where that is plain, else a likeness with a hash."""
    topic = ref.topic
    clashes = _LOOKS_HASHED.fullmatch(topic) or topic.endswith(_DEAD_LETTERS_END)
    if not _PLAIN.fullmatch(topic) or len(topic) > _NAME_CHARS_MAX or clashes:
        likeness = re.sub(r"[^a-z0-9]+", "_", topic.lower()).strip("_")[:_NAME_CHARS_MAX] or "topic"
        topic = f"{likeness}_{sha256(topic.encode()).hexdigest()[:8]}"
    return topic if ref.kind is Kind.ROWS else f"{topic}{_DEAD_LETTERS_END}"


def detached_name(ref: TableRef) -> str:
    """What the table is called once its topic is gone."""
    return f"{table_name(ref)}__{ref.topic_id.hex}"


def root_address(root_url: str) -> str:
    """The root as table libraries spell it: `file:///absolute/path` or the bucket's address, without a final slash."""
    parts = urlsplit(root_url)
    if parts.scheme in ("s3", "gs", "az") and parts.netloc:
        return root_url.rstrip("/")
    if parts.scheme == "file":
        return f"file://{unquote(parts.path).rstrip('/')}"
    if "://" not in root_url and not set("#?") & set(root_url):  # which table libraries take for parts of a URL
        return f"file://{Path(root_url).absolute()}"
    raise Invalid(
        f"tables cannot be kept at {parts.scheme}:{parts.path}", "Use a folder without # and ?, s3://, gs:// or az://"
    )


def iceberg_address(root: str, account: str | None) -> str:
    """The root as Iceberg's libraries spell it, who know Azure by its file system's name."""
    if not root.startswith("az://"):
        return root
    if account is None:
        raise Invalid(f"Iceberg tables at {root} need the storage account's name", "Set objects.account")
    container, _, prefix = root.removeprefix("az://").partition("/")
    return f"abfss://{container}@{account}.dfs.core.windows.net/{prefix}".rstrip("/")


def local_folder(address: str) -> str | None:
    """The folder behind a `file://` address, or None for a bucket."""
    return address.removeprefix("file://") if address.startswith("file://") else None


def quoted_for_delta(address: str) -> str:
    """Delta's library takes a plain path for a folder and a URL, escaped, for a bucket."""
    folder = local_folder(address)
    return quote(address, safe=":/") if folder is None else folder


def _folder(ref: TableRef) -> str:
    if not _TOPIC.fullmatch(ref.topic):
        raise Invalid(f"topic {ref.topic!r} cannot be part of a path", "Use the letters that Kafka allows")
    hidden = "" if ref.topic[0].isalnum() else "topic"  # engines and stores pass over names that begin with . or _
    ending = "" if ref.kind is Kind.ROWS else "-dead-letters"
    return f"{hidden}{ref.topic[:_NAME_CHARS_MAX]}-{ref.topic_id}{ending}"
