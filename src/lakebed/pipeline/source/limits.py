"""How far one batch of a streaming read goes when it is limited by offsets or bytes.

Pure. Every partition gets a share in proportion to what it has waiting, so none starves.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakebed.kernel import Snapshot, Stream
from lakebed.pipeline.source.plan import Bound


def limited(
    snapshot: Snapshot, wanted: Sequence[Bound], offsets_max: int | None, bytes_max: int | None
) -> dict[int, int]:
    """The offset behind the last that the batch takes, by partition."""
    stops = {bound.partition: bound.end for bound in wanted}
    if offsets_max is not None:
        stops = _by_offsets(wanted, offsets_max)
    if bytes_max is not None:
        by_bytes = _by_bytes(snapshot, wanted, bytes_max)
        stops = {partition: min(stop, by_bytes[partition]) for partition, stop in stops.items()}
    return stops


def _by_offsets(wanted: Sequence[Bound], most: int) -> dict[int, int]:
    """One for every partition that waits, the rest by what else it has waiting. What does not divide is given in turns."""
    waiting = [bound for bound in wanted if bound.end > bound.start]
    if sum(bound.end - bound.start for bound in waiting) <= most:
        return {bound.partition: bound.end for bound in wanted}
    turn = sum(bound.start for bound in waiting) // most % len(waiting)  # a batch moves it on by one
    waiting = waiting[turn:] + waiting[:turn]
    shares = [1 if at < most else 0 for at in range(len(waiting))]
    room = [bound.end - bound.start - share for bound, share in zip(waiting, shares, strict=True)]
    rest, total = most - sum(shares), sum(room)
    shares = [share + more * rest // total for share, more in zip(shares, room, strict=True)]
    left = most - sum(shares)
    for at, bound in enumerate(waiting):
        if left and shares[at] < bound.end - bound.start:
            shares[at] += 1
            left -= 1
    stops = {bound.partition: bound.start + share for bound, share in zip(waiting, shares, strict=True)}
    return {bound.partition: stops.get(bound.partition, bound.end) for bound in wanted}


def _by_bytes(snapshot: Snapshot, wanted: Sequence[Bound], most: int) -> dict[int, int]:
    """Whole index entries, at least one in all; a large settled file is taken in part, by its offsets."""
    streams = {bound.partition: snapshot.stream(bound.stream) for bound in wanted}
    waiting = {bound.partition: _bytes(streams[bound.partition], bound.start, bound.end) for bound in wanted}
    total = sum(waiting.values())
    if total <= most:
        return {bound.partition: bound.end for bound in wanted}
    return {
        bound.partition: _stop(streams[bound.partition], bound, waiting[bound.partition] * most // total)
        for bound in wanted
    }


def _bytes(stream: Stream | None, start: int, end: int) -> int:
    """About how many bytes [start, end) takes, by the counter that every entry carries."""
    if stream is None or start >= end:
        return 0
    return max(1, _position(stream, end) - _position(stream, start))


def _position(stream: Stream, offset: int) -> int:
    """How many bytes were ever written before `offset`, about."""
    entry = stream.find(min(max(offset, stream.start), stream.end - 1))
    if entry is None:
        return 0
    if offset >= entry.offset_end:
        return entry.cumulative_size
    width = entry.offset_end - entry.offset_start
    before = stream.find(entry.offset_start - 1)
    low = before.cumulative_size if before else max(0, entry.cumulative_size - entry.size)
    return low + (entry.cumulative_size - low) * max(0, offset - entry.offset_start) // width


def _stop(stream: Stream | None, bound: Bound, share_bytes: int) -> int:
    """The farthest offset that stays within the share, at least one further than the start."""
    if stream is None or bound.start >= bound.end:
        return bound.end
    low, high = bound.start + 1, bound.end
    limit = _position(stream, bound.start) + share_bytes
    while low < high:
        middle = (low + high + 1) // 2
        if _position(stream, middle) <= limit:
            low = middle
        else:
            high = middle - 1
    return low
