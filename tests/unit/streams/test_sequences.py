"""Idempotent producers as tables: what was written, what comes, what the log says."""

from __future__ import annotations

import pytest

from lakebed.records import BatchSummary
from lakebed.streams.sequences import SEQUENCE_MAX, describe, judge, last_version, remember
from lakebed.wal import Verdict

A, D, O, S, U = (  # noqa: E741
    Verdict.APPENDED,
    Verdict.DUPLICATE,
    Verdict.OUT_OF_ORDER,
    Verdict.STALE_EPOCH,
    Verdict.UNKNOWN_PRODUCER,
)
Written = tuple[int, int, int]  # epoch, sequence, number of records


def summary(epoch: int, sequence: int, count: int, producer: int = 7) -> BatchSummary:
    return BatchSummary(0, 100, count, producer, epoch, sequence, 0, 0, 0)


def memory(*written: Written) -> bytes | None:
    known, offset = None, 100
    for epoch, sequence, count in written:
        known = remember(known, summary(epoch, sequence, count), offset, 5)
        offset += count
    return known


FIVE = tuple((0, n * 10, 10) for n in range(5))
SIX = tuple((0, n * 10, 10) for n in range(6))


@pytest.mark.parametrize(
    ("written", "comes", "expected"),
    [
        ((), (0, 0, 1), (A, -1)),
        ((), (3, 0, 1), (A, -1)),
        ((), (0, 5, 1), (U, -1)),
        (((0, 0, 3),), (0, 3, 1), (A, -1)),
        (((0, 0, 3),), (0, 0, 3), (D, 100)),
        (((0, 0, 3),), (0, 0, 2), (O, -1)),
        (((0, 0, 3),), (0, 2, 1), (O, -1)),
        (((0, 0, 3),), (0, 4, 1), (O, -1)),
        (((1, 0, 3),), (0, 3, 1), (S, -1)),
        (((1, 0, 3),), (2, 0, 1), (A, -1)),
        (((1, 0, 3),), (2, 3, 1), (O, -1)),
        (FIVE, (0, 50, 1), (A, -1)),
        (FIVE, (0, 0, 10), (D, 100)),
        (FIVE, (0, 40, 10), (D, 140)),
        (SIX, (0, 0, 10), (O, -1)),
        (SIX, (0, 10, 10), (D, 110)),
        (SIX, (0, 50, 10), (D, 150)),
        (((0, SEQUENCE_MAX, 1),), (0, 0, 1), (A, -1)),
        (((0, SEQUENCE_MAX - 1, 4),), (0, 2, 1), (A, -1)),
        (((0, SEQUENCE_MAX - 1, 4),), (0, SEQUENCE_MAX - 1, 4), (D, 100)),
        (((0, 0, 3), (1, 0, 2)), (1, 2, 1), (A, -1)),
        (((0, 0, 3), (1, 0, 2)), (0, 0, 3), (S, -1)),
    ],
)
def test_batch_after_history_gets_its_verdict(
    written: tuple[Written, ...], comes: Written, expected: tuple[Verdict, int]
) -> None:
    assert judge(memory(*written), summary(*comes), expired_below=0) == expected


@pytest.mark.parametrize(("expired_below", "expected"), [(7, U), (8, A), (100, A)])
def test_unknown_producer_below_the_expiry_floor_may_begin_anywhere(expired_below: int, expected: Verdict) -> None:
    assert judge(None, summary(0, 55, 1), expired_below)[0] is expected


def test_memory_is_short_and_describes_itself() -> None:
    known = memory(*SIX)
    assert known is not None
    assert len(known) == 90
    assert last_version(known) == 5
    assert describe(7, known) == (7, 0, 5, 59, 159)
