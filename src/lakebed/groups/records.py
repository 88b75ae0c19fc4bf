"""What of a group is committed, and its JSON: all that must survive a takeover, and nothing that need not.

Invariant: a head is written with every change of its group and carries a revision that no other step ever had, so a
change that was decided on anything but the newest state is refused, also one whose predecessors were lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeAlias

import msgspec

Assignment: TypeAlias = Mapping[bytes, frozenset[int]]
"""Partitions by topic id; a topic without partitions is not in it."""

NOTHING: Assignment = {}

Place: TypeAlias = tuple[bytes, int]
"""A topic id and a partition."""


class Phase(StrEnum):
    """The states of a classic group, as Kafka spells them. `PREPARING` is never committed."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(StrEnum):
    """How far a member of a consumer group is on its way to its target."""

    STABLE = "stable"
    UNREVOKED = "unrevoked_partitions"
    UNRELEASED = "unreleased_partitions"


class ClassicHead(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="classic"):
    """The head of a classic group."""

    revision: str
    phase: Phase
    generation: int
    since_ms: int
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None


class ConsumerHead(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="consumer"):
    """The head of a consumer group. `topics` is a digest of the partitions its subscriptions mean."""

    revision: str
    epoch: int
    target_epoch: int
    topics: str = ""


Head: TypeAlias = ClassicHead | ConsumerHead


class ClassicRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member of a classic group."""

    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    instance_id: str | None = None


class ConsumerRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member of a consumer group. Partitions as ranges: `{"<topic id>": "0-7,9"}`. `since`: the same by the epoch in
    which it got them.
    """

    client_id: str
    client_host: str
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    rebalance_timeout_ms: int = -1
    names: tuple[str, ...] = ()
    regex: str = ""
    assignor: str | None = None
    rack_id: str | None = None
    instance_id: str | None = None
    owned: dict[str, str] = {}
    revoking: dict[str, str] = {}
    since: dict[int, dict[str, str]] = {}


class OffsetRecord(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A committed offset. Names are short because there are many of them."""

    offset: int = msgspec.field(name="o")
    committed_ms: int = msgspec.field(name="t")
    leader_epoch: int = msgspec.field(name="l", default=-1)
    metadata: str = msgspec.field(name="m", default="")
    expires_ms: int = msgspec.field(name="x", default=-1)


_ENCODER = msgspec.json.Encoder()
_HEADS: msgspec.json.Decoder[Head] = msgspec.json.Decoder(Head)
_CLASSIC = msgspec.json.Decoder(ClassicRecord)
_CONSUMER = msgspec.json.Decoder(ConsumerRecord)
_OFFSETS = msgspec.json.Decoder(OffsetRecord)
_TARGETS = msgspec.json.Decoder(dict[str, str])
_ASSIGNED = msgspec.json.Decoder(bytes)

encode = _ENCODER.encode
decode_head = _HEADS.decode
decode_classic = _CLASSIC.decode
decode_consumer = _CONSUMER.decode
decode_offset = _OFFSETS.decode
decode_assigned = _ASSIGNED.decode


def encode_assignment(assignment: Assignment) -> bytes:
    return encode(pack(assignment))


def decode_assignment(body: bytes) -> Assignment:
    return unpack(_TARGETS.decode(body))


def pack(assignment: Assignment) -> dict[str, str]:
    """As ranges by topic, in an order that depends on nothing but the assignment."""
    return {topic.hex(): _ranges(assignment[topic]) for topic in sorted(assignment)}


def unpack(packed: Mapping[str, str]) -> Assignment:
    return {bytes.fromhex(topic): frozenset(_numbers(text)) for topic, text in packed.items()}


def pack_since(since: Mapping[Place, int]) -> dict[int, dict[str, str]]:
    """Places by the epochs they are mapped to."""
    by_epoch: dict[int, dict[bytes, set[int]]] = {}
    for (topic_id, partition), epoch in since.items():
        by_epoch.setdefault(epoch, {}).setdefault(topic_id, set()).add(partition)
    return {
        epoch: pack({topic_id: frozenset(each) for topic_id, each in by_epoch[epoch].items()})
        for epoch in sorted(by_epoch)
    }


def unpack_since(packed: Mapping[int, Mapping[str, str]]) -> dict[Place, int]:
    return {
        (topic_id, partition): epoch
        for epoch, assignment in packed.items()
        for topic_id, partitions in unpack(assignment).items()
        for partition in partitions
    }


def _ranges(numbers: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _numbers(text: str) -> Iterable[int]:
    for run in text.split(",") if text else ():
        first, _, last = run.partition("-")
        yield from range(int(first), int(last or first) + 1)
