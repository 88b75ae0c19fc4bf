"""What a source can say to Spark 4.2 about limits, and be told. Spark 4.1 knows none of it and never asks."""

from __future__ import annotations

from typing import Any, TypeVar

try:
    from pyspark.sql.streaming import datasource as _words  # type: ignore[attr-defined]
except ImportError:
    _words: Any = None  # type: ignore[no-redef]

Reader = TypeVar("Reader", bound=type)


def ends_where_told(reader: Reader) -> Reader:
    """Marks a reader that has `prepareForTriggerAvailableNow`, so that a query with that trigger may take several batches."""
    if _words is not None:
        _words.SupportsTriggerAvailableNow.register(reader)
    return reader


def read_limit(offsets_max: int | None, bytes_max: int | None) -> object:
    """What the options ask for. Spark's words have room for one of them; the reader holds to both."""
    if offsets_max is not None:
        return _words.ReadMaxRows(offsets_max)
    return _words.ReadAllAvailable() if bytes_max is None else _words.ReadMaxBytes(bytes_max)


def is_everything(limit: object) -> bool:
    """Whether the trigger wants all there is, whatever the options say."""
    return _words is not None and isinstance(limit, _words.ReadAllAvailable)
