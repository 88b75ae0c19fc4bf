"""Packed batch summaries, remembered: what a decision packs its own replay unpacks a moment later.

A cache of pure functions: bounded, and never the only place of anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakebed.records import BatchSummary, pack_summaries, unpack_summaries

_REMEMBERED_MAX = 4096
_REMEMBERED_BATCHES_MAX = 256

_remembered: dict[str, Sequence[BatchSummary]] = {}


def packed(batches: Sequence[BatchSummary]) -> str:
    """The batches as text for the index."""
    text = pack_summaries(batches)
    _remember(text, batches)
    return text


def unpacked(text: str) -> Sequence[BatchSummary]:
    """The batches that `text` stands for. Not to be changed."""
    known = _remembered.get(text)
    return unpack_summaries(text) if known is None else known


def _remember(text: str, batches: Sequence[BatchSummary]) -> None:
    if len(batches) <= _REMEMBERED_BATCHES_MAX:
        if len(_remembered) >= _REMEMBERED_MAX:
            _remembered.clear()
        _remembered[text] = batches
