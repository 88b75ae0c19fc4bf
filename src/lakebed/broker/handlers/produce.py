"""Produce, v3-13. v5 answers with the log start, v8 with messages, v10 with the leader a client should go to; v13 names
topics by id. zstd is allowed from v7.

Answered when the object and its commit are durable, for acks=1 as for acks=all. acks=0 gets no answer; when something was
wrong, the connection is closed, which is how such a producer learns of it. What is not durable within the request's time is
answered REQUEST_TIMED_OUT and may be stored yet: an idempotent producer that sends it again gets its first offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from lakebed.broker.answers import Answer, Deferred
from lakebed.broker.context import Call, Context
from lakebed.broker.deadlines import in_time
from lakebed.broker.recompression import recompressed, wanted_codec
from lakebed.clock import within
from lakebed.errors import Invalid, LakebedError
from lakebed.protocol import Api, Buffer, ErrorCode, code_for
from lakebed.protocol import produce as wire
from lakebed.records import BatchHeader, Codec, Refusal, Refused, check_produce, stamp_append_time
from lakebed.streams import Topic
from lakebed.wal import Appended, Piece, Verdict

API, VERSIONS = Api.PRODUCE, range(3, 14)

REFUSALS = {
    Refusal.CORRUPT: ErrorCode.CORRUPT_MESSAGE,
    Refusal.LEGACY_FORMAT: ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    Refusal.TOO_LARGE: ErrorCode.MESSAGE_TOO_LARGE,
    Refusal.UNSUPPORTED_CODEC: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    Refusal.INVALID_RECORD: ErrorCode.INVALID_RECORD,
    Refusal.INVALID_TIMESTAMP: ErrorCode.INVALID_TIMESTAMP,
    Refusal.TRANSACTIONAL: ErrorCode.INVALID_TXN_STATE,
}
VERDICTS = {
    Verdict.APPENDED: ErrorCode.NONE,
    Verdict.DUPLICATE: ErrorCode.NONE,
    Verdict.OUT_OF_ORDER: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Verdict.UNKNOWN_PRODUCER: ErrorCode.UNKNOWN_PRODUCER_ID,
    Verdict.STALE_EPOCH: ErrorCode.INVALID_PRODUCER_EPOCH,
    Verdict.NO_STREAM: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    Verdict.STALE_OBJECT: ErrorCode.KAFKA_STORAGE_ERROR,
}
_NO_ACKS, _ACKS = 0, (-1, 0, 1)
_ZSTD_FROM, _IDS_FROM = 7, 13


def handle(request: wire.ProduceRequest, call: Call, context: Context) -> Answer:
    """Append what is in order and say for each partition how it went."""
    produce = _Produce(request, call, context)
    if request.acks not in _ACKS:
        return produce.refuse_all(ErrorCode.INVALID_REQUIRED_ACKS)
    if request.transactional_id is not None:
        return produce.refuse_all(ErrorCode.INVALID_TXN_STATE)
    return produce.append() if produce.knows_all_topics() else produce.append_after_refresh()


class _Late(Exception):
    """What waits for a request hears this when its time is over. What it was to hear comes to nothing; it may be stored yet."""


class _Slot:
    """One partition of the request and what became of it."""

    __slots__ = ("base_offset", "code", "domain", "index", "log_append_time_ms", "log_start", "message", "wrong_batch")

    def __init__(self, index: int) -> None:
        self.index = index
        self.code: int = ErrorCode.NONE
        self.domain = -1
        self.base_offset = self.log_append_time_ms = self.log_start = -1
        self.message: str | None = None
        self.wrong_batch = -1


class _Produce:
    """One request on its way."""

    def __init__(self, request: wire.ProduceRequest, call: Call, context: Context) -> None:
        self._request, self._call, self._context = request, call, context
        self._by_id = call.version >= _IDS_FROM
        self._now_ms = context.clock.now_ms()
        self._topics = [self._find(topic) for topic in request.topic_data]
        self._slots: list[list[_Slot]] = []
        self._pieces: dict[int, list[Piece]] = {}
        self._waiting: dict[int, list[_Slot]] = {}
        self._recompressing: list[tuple[_Slot, Topic, int, Buffer, Sequence[BatchHeader], Codec]] = []
        timed = request.timeout_ms > 0 and request.acks != _NO_ACKS
        self._until_s = context.clock.monotonic_s() + request.timeout_ms / 1000 if timed else None

    def knows_all_topics(self) -> bool:
        return None not in self._topics

    async def append_after_refresh(self) -> Answer:
        """A topic that is not known here may have been created through another broker."""
        await self._context.topics.refresh()
        self._topics = [self._find(topic) for topic in self._request.topic_data]
        return self.append()

    def append(self) -> Answer:
        """Check everything, then hand it to the flushers; order is that of these calls."""
        for data, topic in zip(self._request.topic_data, self._topics, strict=True):
            slots = [_Slot(each.index) for each in data.partition_data]
            self._slots.append(slots)
            for slot, each in zip(slots, data.partition_data, strict=True):
                if topic is None:
                    slot.code = self._unknown()
                else:
                    self._check(slot, topic, each.records)
        return self._recompress_and_hand_over() if self._recompressing else self._hand_over()

    def refuse_all(self, code: ErrorCode) -> Answer:
        for data in self._request.topic_data:
            slots = [_Slot(each.index) for each in data.partition_data]
            for slot in slots:
                slot.code = code
            self._slots.append(slots)
        return self._response()

    def _find(self, data: wire.TopicProduceData) -> Topic | None:
        topics = self._context.topics
        return topics.find_id(data.topic_id) if self._by_id else topics.find(data.name)

    def _unknown(self) -> ErrorCode:
        return ErrorCode.UNKNOWN_TOPIC_ID if self._by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _check(self, slot: _Slot, topic: Topic, payload: Buffer | None) -> None:
        stream = topic.stream(slot.index)
        if stream is None:
            slot.code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return
        if self._context.is_elsewhere(stream, self._call):
            slot.code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return
        rules = topic.rules
        found = check_produce(payload if payload is not None else b"", rules.produce, self._now_ms)
        if isinstance(found, Refused):
            slot.code, slot.message, slot.wrong_batch = REFUSALS[found.reason], found.detail, found.batch_index
            return
        assert payload is not None
        if self._call.version < _ZSTD_FROM and any(header.codec_id == Codec.ZSTD for header in found):
            slot.code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            return
        codec = wanted_codec(rules.compression, found)
        if codec is None:
            self._accept(slot, topic, stream, payload, found)
        else:
            self._recompressing.append((slot, topic, stream, payload, found, codec))

    def _accept(self, slot: _Slot, topic: Topic, stream: int, payload: Buffer, headers: Sequence[BatchHeader]) -> None:
        if topic.rules.log_append_time:
            slot.log_append_time_ms = self._now_ms
            headers = [stamp_append_time(memoryview(payload), header, self._now_ms) for header in headers]
        slot.domain = topic.domain
        self._pieces.setdefault(topic.domain, []).append(Piece(stream, payload, headers))
        self._waiting.setdefault(topic.domain, []).append(slot)

    async def _recompress_and_hand_over(self) -> Answer:
        """Requests of this connection wait behind this one, so that their order is kept."""
        for slot, topic, stream, payload, headers, codec in self._recompressing:
            try:
                self._accept(slot, topic, stream, *await recompressed(payload, headers, codec))
            except LakebedError as error:
                slot.code, slot.message = ErrorCode.CORRUPT_MESSAGE, str(error)
        return self._hand_over()

    def _hand_over(self) -> Answer:
        if not self._pieces:
            return self._response()
        return self._submit_when_relieved() if self._context.pressure.pressed else self._submit()

    async def _submit_when_relieved(self) -> Answer:
        """Requests of this connection wait behind this one, and then its socket does."""
        try:
            await within(self._left_s(), self._context.pressure.relieved())
        except TimeoutError:
            for domain in self._pieces:
                self._time_out(domain)
            return self._response()
        return self._submit()

    def _submit(self) -> Answer:
        if len(self._pieces) == 1:
            ((domain, pieces),) = self._pieces.items()
            try:
                appended = self._context.domains[domain].append(pieces)
            except LakebedError as error:
                self._fail(domain, error)
                return self._response()
            _expire(appended, self._left_s())
            return Deferred(appended, lambda _: self._settle_one(domain, appended))
        return self._submit_many()

    def _submit_many(self) -> Answer:
        sent: dict[int, asyncio.Future[list[Appended]]] = {}
        for domain, pieces in self._pieces.items():
            try:
                sent[domain] = self._context.domains[domain].append(pieces)
            except LakebedError as error:
                self._fail(domain, error)

        def settle(_: object) -> wire.ProduceResponse | None:
            for domain, done in sent.items():
                self._settle(domain, done)
            return self._response()

        return Deferred(in_time(asyncio.gather(*sent.values(), return_exceptions=True), self._left_s()), settle)

    def _settle_one(self, domain: int, done: asyncio.Future[list[Appended]]) -> wire.ProduceResponse | None:
        self._settle(domain, done)
        return self._response()

    def _settle(self, domain: int, done: asyncio.Future[list[Appended]]) -> None:
        if not done.done():
            self._time_out(domain)
            return
        error = done.exception()
        if error is not None:
            self._time_out(domain) if isinstance(error, _Late) else self._fail(domain, error)
            return
        for slot, (verdict, base_offset, log_start) in zip(self._waiting[domain], done.result(), strict=True):
            slot.base_offset, slot.log_start = base_offset, log_start
            if verdict is not Verdict.APPENDED:
                slot.code = self._unknown() if verdict is Verdict.NO_STREAM else VERDICTS[verdict]

    def _left_s(self) -> float | None:
        return None if self._until_s is None else max(0.0, self._until_s - self._context.clock.monotonic_s())

    def _time_out(self, domain: int) -> None:
        for slot in self._waiting[domain]:
            slot.code, slot.message = ErrorCode.REQUEST_TIMED_OUT, "not durable in time; it may be stored yet"

    def _fail(self, domain: int, error: BaseException) -> None:
        code = code_for(error) if isinstance(error, Exception) else ErrorCode.UNKNOWN_SERVER_ERROR
        for slot in self._waiting[domain]:
            slot.code, slot.message = code, str(error) if isinstance(error, LakebedError) else None

    def _response(self) -> wire.ProduceResponse | None:
        if self._request.acks == _NO_ACKS:
            if any(slot.code for slots in self._slots for slot in slots):
                raise Invalid("a produce request without acks failed", "Send with acks=1 to learn why")
            return None
        topics = [
            wire.TopicProduceResponse(
                data.topic_id,
                [self._partition(slot, data) if slot.code else _stored(slot) for slot in slots],
                data.name,
            )
            for data, slots in zip(self._request.topic_data, self._slots, strict=True)
        ]
        return wire.ProduceResponse(responses=topics)

    def _partition(self, slot: _Slot, data: wire.TopicProduceData) -> wire.PartitionProduceResponse:
        """The answer for a partition that failed."""
        leader, errors = wire.LeaderIdAndEpoch(), []
        if slot.wrong_batch >= 0 and slot.code == ErrorCode.INVALID_RECORD:
            errors.append(wire.BatchIndexAndErrorMessage(slot.wrong_batch, slot.message))
        if slot.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            topic = self._find(data)
            stream = topic.stream(slot.index) if topic else None
            if stream is not None:
                leader = wire.LeaderIdAndEpoch(self._context.leader(stream, self._call), 0)
        return wire.PartitionProduceResponse(
            index=slot.index,
            error_code=slot.code,
            base_offset=-1,
            record_errors=errors,
            error_message=slot.message,
            current_leader=leader,
        )


def _expire(appended: asyncio.Future[list[Appended]], timeout_s: float | None) -> None:
    """Have it end by itself when the time is over."""
    if timeout_s is not None:
        timer = appended.get_loop().call_later(timeout_s, _end_late, appended)
        appended.add_done_callback(lambda _: timer.cancel())


def _end_late(appended: asyncio.Future[list[Appended]]) -> None:
    if not appended.done():
        appended.set_exception(_Late())


def _stored(slot: _Slot) -> wire.PartitionProduceResponse:
    return wire.PartitionProduceResponse(
        slot.index, ErrorCode.NONE, slot.base_offset, slot.log_append_time_ms, slot.log_start
    )
