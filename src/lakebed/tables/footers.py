"""A settled file described by its own footer, so that no column is read twice.

Invariant: what is said of a file is what its writer counted; a file whose rows lie outside of its
planned range is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from lakebed.errors import Invalid
from lakebed.tables.port import SettledFile

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def describe_footer(
    footer: pq.FileMetaData,
    *,
    path: str,
    partition: int,
    offset_start: int,
    offset_end: int,
    size_bytes: int,
    xxh128: str,
) -> SettledFile:
    """`SettledFile` of what was just written; the writer must keep statistics of partition, offset and timestamp."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    statistics = _statistics(footer, groups)
    if _bounds(statistics, "partition", path) != (partition, partition):
        raise Invalid(f"{path} has rows of another partition than {partition}", "Write one file per partition")
    offset_min, offset_max = _bounds(statistics, "offset", path)
    first, last = _bounds(statistics, "timestamp", path)
    return SettledFile(
        path=path,
        partition=partition,
        offset_start=offset_start,
        offset_end=offset_end,
        rows=footer.num_rows,
        size_bytes=size_bytes,
        xxh128=xxh128,
        offset_min=offset_min,
        offset_max=offset_max,
        timestamp_min_ms=(first - _EPOCH) // _MILLISECOND,
        timestamp_max_ms=-((_EPOCH - last) // _MILLISECOND),
        null_counts=_null_counts(statistics),
        row_group_positions=_positions(groups),
    )


def _statistics(footer: pq.FileMetaData, groups: Sequence[Any]) -> dict[str, list[Any]]:
    """Of every flat column, by row group. Each is made once, because making them is what describing a footer costs."""
    schema = footer.schema
    paths = {schema.column(index).path: index for index in range(len(schema))}
    return {
        path: [group.column(index).statistics for group in groups] for path, index in paths.items() if "." not in path
    }


def _bounds(statistics: Mapping[str, Sequence[Any]], name: str, path: str) -> tuple[Any, Any]:
    known = statistics[name]
    if not known or not all(each is not None and each.has_min_max for each in known):
        raise Invalid(f"{path} has no statistics of {name}", "Write statistics of partition, offset and timestamp")
    return min(each.min for each in known), max(each.max for each in known)


def _null_counts(statistics: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    """Of the columns whose nulls were counted in every row group."""
    return {
        name: sum(each.null_count for each in known)
        for name, known in statistics.items()
        if all(each is not None and each.has_null_count for each in known)
    }


def _positions(groups: Sequence[Any]) -> tuple[int, ...]:
    """Where row groups begin: engines split large files there."""
    first_columns = [group.column(0) for group in groups]
    return tuple(
        column.data_page_offset if column.dictionary_page_offset is None else column.dictionary_page_offset
        for column in first_columns
    )
