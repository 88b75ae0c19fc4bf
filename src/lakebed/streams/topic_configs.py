"""Topic configurations: the complete table of what may be set, how it is checked, and what it means here.

A name that is not in the table is refused. Values are kept as the text a client sent; only overrides are kept, so a default
that changes changes for everyone who has not chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

from lakebed.errors import Invalid
from lakebed.records import ProduceRules
from lakebed.streams.retention import Keep

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1


class Kind(Enum):
    """Kafka's types of configuration values."""

    BOOLEAN = "boolean"
    STRING = "string"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    LIST = "list"


class ConfigKey(NamedTuple):
    """One configuration. `honoured` is False for those that are accepted because clients send them, and mean nothing here."""

    name: str
    kind: Kind
    default: str
    check: Callable[[str], object]
    doc: str
    honoured: bool = True


class TopicRules(NamedTuple):
    """A topic's configuration, read once: what produce, fetch and retention go by."""

    produce: ProduceRules
    keep: Keep
    compression: str
    log_append_time: bool
    table_retention_ms: int = -2
    """How long the topic's tables keep rows: -1 for ever, -2 as long as `tables.retention` says."""


def check_configs(overrides: Mapping[str, str]) -> dict[str, str]:
    """The overrides, or `Invalid` with the first that is not allowed."""
    for name, value in overrides.items():
        key = TABLE.get(name)
        if key is None:
            raise Invalid(f"unknown topic config {name}", f"Known are: {', '.join(sorted(TABLE))}")
        try:
            key.check(value)
        except ValueError as error:
            raise Invalid(f"invalid value {value!r} for {name}: {error}", f"The default is {key.default!r}") from error
    return dict(overrides)


def value_of(overrides: Mapping[str, str], name: str) -> str:
    """The effective value of a configuration."""
    return overrides.get(name, TABLE[name].default)


def rules_of(overrides: Mapping[str, str]) -> TopicRules:
    """What the overrides mean, with defaults for the rest."""

    def number(name: str) -> int:
        return int(value_of(overrides, name))

    def limit(name: str) -> int | None:
        return None if number(name) == LONG_MAX else number(name)

    return TopicRules(
        produce=ProduceRules(
            batch_bytes_max=number("max.message.bytes"),
            timestamp_before_max_ms=limit("message.timestamp.before.max.ms"),
            timestamp_after_max_ms=limit("message.timestamp.after.max.ms"),
        ),
        keep=Keep(number("retention.ms"), number("retention.bytes")),
        compression=value_of(overrides, "compression.type"),
        log_append_time=value_of(overrides, "message.timestamp.type") == "LogAppendTime",
        table_retention_ms=number("lakebed.table.retention.ms"),
    )


def _whole(low: int, high: int) -> Callable[[str], object]:
    def check(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(f"must lie between {low} and {high}")
        return value

    return check


def _one_of(*choices: str) -> Callable[[str], object]:
    def check(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return text

    return check


def _ratio(text: str) -> float:
    if not 0 <= float(text) <= 1:
        raise ValueError("must lie between 0 and 1")
    return float(text)


def _policies(text: str) -> list[str]:
    policies = [policy.strip() for policy in text.split(",")]
    if "compact" in policies:
        raise ValueError("compact is not built yet: a topic that must be compacted cannot live here, use delete")
    if policies != ["delete"]:
        raise ValueError("must be delete")
    return policies


def _empty(text: str) -> str:
    if text not in ("", "*"):
        raise ValueError("there are no replicas to throttle")
    return text


_SWITCH = _one_of("true", "false")
_OFF = _one_of("false")
_LONG = _whole(0, LONG_MAX)
_LIMITLESS = _whole(-1, LONG_MAX)
_SIZE = _whole(0, INT_MAX)
_CODECS = _one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
_DAY_MS, _WEEK_MS = 86_400_000, 604_800_000

_KEYS = (
    ConfigKey("cleanup.policy", Kind.LIST, "delete", _policies, "delete removes old records; compact is refused"),
    ConfigKey("compression.type", Kind.STRING, "producer", _CODECS, "How batches are compressed when they arrive"),
    ConfigKey("max.message.bytes", Kind.INT, "1048588", _SIZE, "The largest record batch that is accepted"),
    ConfigKey(
        "message.timestamp.type",
        Kind.STRING,
        "CreateTime",
        _one_of("CreateTime", "LogAppendTime"),
        "Whose clock stamps records",
    ),
    ConfigKey(
        "message.timestamp.before.max.ms", Kind.LONG, str(LONG_MAX), _LONG, "How far a timestamp may lie in the past"
    ),
    ConfigKey(
        "message.timestamp.after.max.ms", Kind.LONG, "3600000", _LONG, "How far a timestamp may lie in the future"
    ),
    ConfigKey("retention.ms", Kind.LONG, str(_WEEK_MS), _LIMITLESS, "How long records are kept; -1 for ever"),
    ConfigKey("retention.bytes", Kind.LONG, "-1", _LIMITLESS, "How many bytes of a partition are kept; -1 all"),
    ConfigKey(
        "lakebed.table.retention.ms",
        Kind.LONG,
        "-2",
        _whole(-2, LONG_MAX),
        "How long the topic's tables keep rows; -1 for ever, -2 as the cluster's tables.retention says",
    ),
    ConfigKey("min.insync.replicas", Kind.INT, "1", _whole(1, INT_MAX), "The store is the replica", False),
    ConfigKey("segment.bytes", Kind.INT, "1073741824", _whole(14, INT_MAX), "There are no segment files", False),
    ConfigKey("segment.ms", Kind.LONG, str(_WEEK_MS), _whole(1, LONG_MAX), "There are no segment files", False),
    ConfigKey("segment.jitter.ms", Kind.LONG, "0", _LONG, "There are no segment files", False),
    ConfigKey("segment.index.bytes", Kind.INT, "10485760", _whole(4, INT_MAX), "There are no segment files", False),
    ConfigKey("index.interval.bytes", Kind.INT, "4096", _SIZE, "Every batch is indexed", False),
    ConfigKey("flush.messages", Kind.LONG, str(LONG_MAX), _whole(1, LONG_MAX), "Every ack is synced", False),
    ConfigKey("flush.ms", Kind.LONG, str(LONG_MAX), _LONG, "Every ack is synced", False),
    ConfigKey("file.delete.delay.ms", Kind.LONG, "60000", _LONG, "Objects have a grace of their own", False),
    ConfigKey("delete.retention.ms", Kind.LONG, str(_DAY_MS), _LONG, "For compaction", False),
    ConfigKey("min.cleanable.dirty.ratio", Kind.DOUBLE, "0.5", _ratio, "For compaction", False),
    ConfigKey("min.compaction.lag.ms", Kind.LONG, "0", _LONG, "For compaction", False),
    ConfigKey("max.compaction.lag.ms", Kind.LONG, str(LONG_MAX), _whole(1, LONG_MAX), "For compaction", False),
    ConfigKey("preallocate", Kind.BOOLEAN, "false", _SWITCH, "There are no segment files", False),
    ConfigKey("unclean.leader.election.enable", Kind.BOOLEAN, "false", _SWITCH, "There are no elections", False),
    ConfigKey("leader.replication.throttled.replicas", Kind.LIST, "", _empty, "There are no replicas", False),
    ConfigKey("follower.replication.throttled.replicas", Kind.LIST, "", _empty, "There are no replicas", False),
    ConfigKey("remote.storage.enable", Kind.BOOLEAN, "false", _OFF, "All storage is remote already", False),
    ConfigKey("local.retention.ms", Kind.LONG, "-2", _whole(-2, LONG_MAX), "Nothing is local", False),
    ConfigKey("local.retention.bytes", Kind.LONG, "-2", _whole(-2, LONG_MAX), "Nothing is local", False),
)
TABLE: Mapping[str, ConfigKey] = {key.name: key for key in _KEYS}
