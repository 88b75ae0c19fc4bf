"""OffsetCommits that come again: consumers say the same thing all day, but for the offsets.

Once a connection has sent the same commit twice, what of it stays is kept as bytes, with all that was found out about it. The
next is compared with those bytes where it lies in the receive buffer, and answered with a frame that is ready but for its
correlation id. It is no other commit than before: the coordinator judges it, and the log decides it, in the same way.

Invariant: a frame is taken only if every byte of it that is no number is the same, its topics are, and its coordinator takes it
whole. Anything else is read and answered by the handler.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence

import msgspec

from lakebed.broker.connection import Connection
from lakebed.broker.context import Call, Context
from lakebed.broker.coordination import SlotLeader, Waiting
from lakebed.broker.handlers.offset_commit import Commit
from lakebed.errors import LakebedError
from lakebed.groups import Again, OffsetRepeat
from lakebed.protocol import SIZE_BYTES, ErrorCode, Message, RequestHeader, request_frame, response_frame
from lakebed.protocol import offset_commit as wire
from lakebed.streams import Topic

_NUMBERED_FROM = 6
"""The version from which on an offset is followed by a leader epoch."""
_PLACES_MAX = 128
_NUMBERS = re.compile(rb"\xff{12}")
_ID_END = SIZE_BYTES + 8


class OffsetRepeats:
    """Notices commits that repeat, and lets their connections know."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def heard(
        self, frame: memoryview, header: RequestHeader, request: wire.OffsetCommitRequest, call: Call, on: Connection
    ) -> None:
        """A commit had to be read: one that is the same as the last one need not be read the next time, if that can be.

        When it cannot, it is tried again after twice as many.
        """
        on.repeat = None
        said, what = on.said, _without_numbers(request)
        if not isinstance(said, _Said) or said.what != what:
            on.said = _Said(what)
            return
        said.times += 1
        if said.times & (said.times - 1) == 0 and header.api_version >= _NUMBERED_FROM:
            on.repeat = self._repeat(frame, header, request, call)
            said.times = said.times if on.repeat is None else 1

    def _repeat(
        self, frame: memoryview, header: RequestHeader, request: wire.OffsetCommitRequest, call: Call
    ) -> CommitRepeat | None:
        commit = Commit(request, call, self._context)
        stays = _Stays.of(frame, header, request) if commit.is_whole else None
        if stays is None:
            return None
        try:
            leader = self._context.groups.leader(request.group_id)
            again = leader.look(lambda coordinator, _: coordinator.repeat_of(commit.asked(), header.api_version))
        except LakebedError:
            return None
        topics = self._context.topics.by_name
        return None if again is None else CommitRepeat(stays, header, commit, leader, again, topics)


class CommitRepeat:
    """One commit, ready to be taken again."""

    def __init__(
        self,
        stays: _Stays,
        header: RequestHeader,
        commit: Commit,
        leader: SlotLeader,
        again: OffsetRepeat,
        topics: Callable[[], Mapping[str, Topic]],
    ) -> None:
        self.header = header
        self.size_bytes = stays.layout.size
        self._unpack, self._first, self._second, self._rest = stays.layout.unpack_from, *stays.values
        self._commit, self._leader, self.again = commit, leader, again
        self._topics, self._by_name = topics, topics()
        self._last: Sequence[int] = ()
        self._before, self._after = self._around_id(commit.all(ErrorCode.NONE))
        self.form = Form(stays.frame, stays.mask, stays.places, self.taken(bytes(4)))

    def take(self, source: memoryview, at: int, connection: Connection, began_s: float) -> bool:
        values = self._unpack(source, at)
        if values[0] != self._first or values[2] != self._second or values[5::3] != self._rest:
            return False
        offsets = values[3::3]
        same, self._last = offsets == self._last, offsets
        again = Again([self.again], offsets, values[4::3], same)
        return self.take_all(again, _Waiting(self, connection, values[1], began_s))

    def take_all(self, again: Again, waiting: Waiting) -> bool:
        """Start commits of this one's group, by this one or others like it. False: they must be read."""
        return self._topics() is self._by_name and self._leader.submit_again(again, waiting)

    def hurry(self) -> None:
        """Nobody else is expected to commit soon."""
        self._leader.hurry()

    def taken(self, correlation_id: bytes) -> bytes:
        """The answer's frame."""
        return self._before + correlation_id + self._after

    def refused(self, correlation_id: bytes, error: LakebedError) -> bytes:
        before, after = self._around_id(self._commit.refused(error))
        return before + correlation_id + after

    def _around_id(self, answer: Message) -> tuple[bytes, bytes]:
        header = self.header
        frame = b"".join(response_frame(header.api_key, header.api_version, 0, answer))
        return frame[:SIZE_BYTES], frame[SIZE_BYTES + 4 :]


class Form(msgspec.Struct, frozen=True):
    """A commit as bytes: its frame, a mask of the same length that is 0 where numbers stand, where the places' numbers begin,
    and the frame that answers it, without its correlation id."""

    frame: bytes
    mask: bytes
    places: tuple[int, ...]
    answer: bytes


class _Waiting(msgspec.Struct, gc=False):
    """Who waits for the answer to a repeat."""

    repeat: CommitRepeat
    connection: Connection
    correlation_id: bytes
    began_s: float

    def set_result(self, _: object, /) -> None:
        repeat = self.repeat
        self.connection.answer_repeat(repeat.taken(self.correlation_id), repeat.header, self.began_s)

    def set_exception(self, error: LakebedError, /) -> None:
        repeat = self.repeat
        self.connection.answer_repeat(repeat.refused(self.correlation_id, error), repeat.header, self.began_s)


class _Said(msgspec.Struct):
    """What a connection commits, and how often it has been read in a row."""

    what: object
    times: int = 1


class _Stays(msgspec.Struct, frozen=True):
    """What of a frame stays, and where: up to the correlation id, from there to the first offset, and behind each epoch."""

    layout: struct.Struct
    values: tuple[bytes, bytes, tuple[bytes, ...]]
    frame: bytes
    mask: bytes
    places: tuple[int, ...]

    @classmethod
    def of(cls, frame: memoryview, header: RequestHeader, request: wire.OffsetCommitRequest) -> _Stays | None:
        """None when there are no numbers in it, too many, or its client writes it in another way than we would."""
        whole = len(frame).to_bytes(SIZE_BYTES) + bytes(frame)
        zeros, ones = (_frame(header, request, number) for number in (0, -1))
        if len(zeros) != len(whole):
            return None
        differ = (int.from_bytes(zeros) ^ int.from_bytes(ones)).to_bytes(len(zeros))
        starts = [found.start() for found in _NUMBERS.finditer(differ)]
        if not 0 < len(starts) <= _PLACES_MAX:
            return None
        gaps = [end - start - 12 for start, end in zip(starts, [*starts[1:], len(whole)], strict=True)]
        layout = struct.Struct(f">8s4s{starts[0] - _ID_END}s" + "".join(f"qi{gap}s" for gap in gaps))
        values = layout.unpack(whole)
        if values[2::3] != layout.unpack(zeros)[2::3]:
            return None
        mask = bytearray(b"\xff" * len(whole))
        mask[_ID_END - 4 : _ID_END] = bytes(4)
        for start in starts:
            mask[start : start + 12] = bytes(12)
        return cls(layout, (values[0], values[2], values[5::3]), whole, bytes(mask), tuple(starts))


def _frame(header: RequestHeader, request: wire.OffsetCommitRequest, number: int) -> bytes:
    """The request as we would write it, with the same number everywhere."""
    topics = [
        wire.OffsetCommitRequestTopic(
            asked.topic_id,
            [
                wire.OffsetCommitRequestPartition(each.partition_index, number, number, each.committed_metadata)
                for each in asked.partitions
            ],
            asked.name,
        )
        for asked in request.topics
    ]
    same = msgspec.structs.replace(request, topics=topics)
    return b"".join(request_frame(header.api_key, header.api_version, 0, header.client_id, same))


def _without_numbers(request: wire.OffsetCommitRequest) -> object:
    """All of it but its numbers, to compare."""
    places = [
        (asked.topic_id, asked.name, [each.partition_index for each in asked.partitions]) for asked in request.topics
    ]
    return request.group_id, request.generation_id_or_member_epoch, request.member_id, request.group_instance_id, places
