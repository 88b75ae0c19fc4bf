"""The table of topic configurations: every default is allowed, and nothing else slips through."""

from __future__ import annotations

import pytest

from lakebed.errors import Invalid
from lakebed.streams import TABLE, check_configs, rules_of, value_of


def test_every_default_is_allowed() -> None:
    check_configs({name: key.default for name, key in TABLE.items()})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "1.5"),
        ("retention.bytes", "many"),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", "delete,delete"),
        ("cleanup.policy", ""),
        ("max.message.bytes", "-1"),
        ("max.message.bytes", str(1 << 31)),
        ("message.timestamp.type", "createtime"),
        ("compression.type", "brotli"),
        ("min.insync.replicas", "0"),
        ("min.cleanable.dirty.ratio", "2"),
        ("segment.bytes", "1"),
        ("remote.storage.enable", "true"),
        ("preallocate", "yes"),
        ("segment", "1"),
    ],
)
def test_bad_value_is_refused_with_its_name(name: str, value: str) -> None:
    with pytest.raises(Invalid, match=name):
        check_configs({name: value})


def test_rules_say_what_the_overrides_mean() -> None:
    rules = rules_of({"retention.ms": "5", "max.message.bytes": "99", "message.timestamp.type": "LogAppendTime"})
    assert (rules.keep, rules.produce.batch_bytes_max, rules.log_append_time) == ((5, -1), 99, True)
    assert rules.produce.timestamp_before_max_ms is None
    assert rules.produce.timestamp_after_max_ms == 3_600_000
    assert rules_of({"cleanup.policy": "delete", "retention.bytes": "7"}).keep.retention_bytes == 7


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
def test_compaction_is_refused_clearly(policy: str) -> None:
    with pytest.raises(Invalid, match="compact is not built yet"):
        check_configs({"cleanup.policy": policy})


def test_effective_value_is_the_override_or_the_default() -> None:
    assert value_of({"retention.ms": "5"}, "retention.ms") == "5"
    assert value_of({}, "retention.ms") == "604800000"
