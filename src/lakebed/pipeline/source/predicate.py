"""What Spark's filters say of partition, offset and timestamp: enough to leave out files and row groups that cannot match.

Invariant: a predicate only ever leaves out rows that the filters refuse; Spark looks at every row that is left again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_ORDERED = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, In)


@dataclass(frozen=True, slots=True)
class Interval:
    """Whole numbers from `low` to `high`, both included."""

    low: int = _LEAST
    high: int = _MOST

    def cut(self, other: Interval) -> Interval:
        return Interval(max(self.low, other.low), min(self.high, other.high))

    def meets(self, low: int, high: int) -> bool:
        """Whether anything between `low` and `high` (included) lies within."""
        return low <= self.high and high >= self.low


ALL = Interval()


@dataclass(frozen=True, slots=True)
class Predicate:
    """The partitions, offsets and moments (microseconds since 1970) that can matter."""

    partition: Interval = ALL
    offset: Interval = ALL
    timestamp_us: Interval = ALL
    partitions: frozenset[int] | None = None

    def wants(self, partition: int) -> bool:
        """Whether rows of the partition can matter."""
        listed = self.partitions is None or partition in self.partitions
        return listed and self.partition.meets(partition, partition)


def predicate_of(filters: Iterable[Filter]) -> Predicate:
    """What all the filters together allow; those that it cannot express it passes over."""
    found = Predicate()
    for each in filters:
        if not isinstance(each, _ORDERED) or len(each.attribute) != 1:
            continue
        name = each.attribute[0]
        numbers = _numbers(name, each.value if isinstance(each, In) else (each.value,))
        if name == "partition" and isinstance(each, In) and numbers is not None:
            listed = frozenset(numbers) & (frozenset(numbers) if found.partitions is None else found.partitions)
            found = replace(found, partitions=listed)
        elif numbers is not None:
            found = _narrowed(found, name, _interval(each, numbers))
    return found


def _narrowed(found: Predicate, name: str, interval: Interval) -> Predicate:
    if name == "partition":
        return replace(found, partition=found.partition.cut(interval))
    if name == "offset":
        return replace(found, offset=found.offset.cut(interval))
    return replace(found, timestamp_us=found.timestamp_us.cut(interval))


def _interval(each: Filter, numbers: Sequence[int]) -> Interval:
    low, high = min(numbers), max(numbers)
    if isinstance(each, GreaterThan):
        return Interval(low=low + 1)
    if isinstance(each, GreaterThanOrEqual):
        return Interval(low=low)
    if isinstance(each, LessThan):
        return Interval(high=high - 1)
    if isinstance(each, LessThanOrEqual):
        return Interval(high=high)
    return Interval(low, high)


def _numbers(name: str, values: Iterable[object]) -> list[int] | None:
    """The values as whole numbers; None when the column is not ours to look at or a value is of no kind we know."""
    kind = {"partition": int, "offset": int, "timestamp": date}.get(name)
    known = [value for value in values if value is not None]
    if kind is None or not known or not all(isinstance(value, kind) for value in known):
        return None
    return [value if isinstance(value, int) else _micros(value) for value in known if isinstance(value, int | date)]


def _micros(value: date) -> int:
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
