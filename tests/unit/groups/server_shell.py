"""The shell of the group tests with a server on the wire in the place of a coordinator: Apache Kafka, or Lakebed itself."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from lakebed.clock import SystemClock
from lakebed.groups import Caller, GroupSettings, OffsetAnswer, OffsetCommit, OffsetFetch
from lakebed.protocol import (
    Api,
    ErrorCode,
    Message,
    consumer_group_describe,
    decode_response,
    delete_groups,
    describe_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    read_response_header,
    request_frame,
)
from tests.unit.groups.shell import Shell, topic_id

DELAY_MS = 1_500
"""The initial rebalance delay that the server must be set to."""

_ANSWER_S = 0.5
_SLICE_S = 3.0
_PATIENCE_S = 20.0
_DESCRIBE_RETRIES = 20


def topic_name(number: int) -> str:
    """As long as `orders`, so that it can take its place in a subscription."""
    return f"o{number:05d}"


class _Answers(dict[int, Any]):
    """Whoever looks for an answer waits for it."""

    def __init__(self, listen: Callable[[int], None]) -> None:
        super().__init__()
        self._listen = listen

    def __missing__(self, ticket: int) -> Any:
        self._listen(ticket)
        return super().__getitem__(ticket) if ticket in self else None

    def get(self, ticket: int, default: Any = None) -> Any:
        return self[ticket]


class ServerShell(Shell):
    """Groups and the topic have names of their own in each shell; waits are no longer than a scenario needs."""

    def __init__(self, bootstrap: str, number: int) -> None:
        self.address = bootstrap
        self.number = number
        self.topic = topic_name(number)
        self.heard: dict[int, Any] = {}
        super().__init__(GroupSettings(initial_rebalance_delay_ms=DELAY_MS))
        self.answers = _Answers(lambda ticket: self.coordinator.await_answer(ticket))  # type: ignore[attr-defined]

    def take_over(self) -> None:
        self.coordinator = _Server(self)  # type: ignore[assignment]

    def perform(self, step: Any) -> None:
        if not self.hold:
            self.coordinator.listen(_ANSWER_S)  # type: ignore[attr-defined]

    def release(self) -> None:
        self.hold = False
        self.coordinator.listen(_SLICE_S)  # type: ignore[attr-defined]

    def wait(self, milliseconds: int) -> None:
        """A session has to run out; everything else is over much sooner than the scenarios allow for."""
        seconds = milliseconds / 1000
        self.coordinator.listen(seconds + 1.5 if seconds >= 10 else min(seconds, _SLICE_S))  # type: ignore[attr-defined]


class _Server:
    """Sends what a coordinator would be asked; each request on a connection of its own, because some are parked."""

    def __init__(self, shell: ServerShell) -> None:
        self.shell = shell
        self.open: dict[socket.socket, tuple[int, Api, int, Any]] = {}
        self.clock = SystemClock()

    def join(self, request: Any, caller: Caller) -> None:
        protocols = [
            msgspec.structs.replace(each, metadata=each.metadata.replace(b"orders", self.shell.topic.encode()))
            for each in request.protocols
        ]
        self._send(Api.JOIN_GROUP, msgspec.structs.replace(request, protocols=protocols), caller)

    def sync(self, request: Any, caller: Caller) -> None:
        self._send(Api.SYNC_GROUP, request, caller)

    def heartbeat(self, request: Any, caller: Caller) -> None:
        self._send(Api.HEARTBEAT, request, caller)

    def leave(self, request: Any, caller: Caller) -> None:
        self._send(Api.LEAVE_GROUP, request, caller)

    def consumer_heartbeat(self, request: Any, caller: Caller) -> None:
        names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
        changed: dict[str, Any] = {}
        if names is not None:
            changed["subscribed_topic_names"] = [self.shell.topic if each == "orders" else each for each in names]
        if regex == "ord.*":
            changed["subscribed_topic_regex"] = f"{self.shell.topic}.*"
        self._send(Api.CONSUMER_GROUP_HEARTBEAT, msgspec.structs.replace(request, **changed), caller)

    def commit_offsets(self, request: OffsetCommit, caller: Caller) -> None:
        partitions = [
            offset_commit.OffsetCommitRequestPartition(
                partition_index=each.partition, committed_offset=each.offset, committed_metadata=each.metadata
            )
            for each in request.offsets
        ]
        message = offset_commit.OffsetCommitRequest(
            group_id=request.group_id,
            generation_id_or_member_epoch=request.generation_or_epoch,
            member_id=request.member_id,
            group_instance_id=request.instance_id,
            topics=[offset_commit.OffsetCommitRequestTopic(name=self.shell.topic, partitions=partitions)],
        )
        self._send(Api.OFFSET_COMMIT, message, caller, _offset_answer)

    def delete_offsets(self, group_id: str, places: Sequence[tuple[bytes, int]], caller: Caller) -> None:
        partitions = [offset_delete.OffsetDeleteRequestPartition(partition_index=number) for _, number in places]
        topics = [offset_delete.OffsetDeleteRequestTopic(name=self.shell.topic, partitions=partitions)]
        message = offset_delete.OffsetDeleteRequest(group_id=group_id, topics=topics)
        self._send(Api.OFFSET_DELETE, message, Caller(caller.ticket, 0), _offset_answer)

    def delete_group(self, group_id: str, caller: Caller) -> None:
        message = delete_groups.DeleteGroupsRequest(groups_names=[self._name(group_id)])
        self._send(Api.DELETE_GROUPS, message, Caller(caller.ticket, 2), lambda answer: answer.results[0].error_code)

    def fetch_offsets(self, request: OffsetFetch, view: object) -> Any:
        group = offset_fetch.OffsetFetchRequestGroup(
            group_id=self._name(request.group_id),
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            topics=None,
        )
        answer = self._ask(Api.OFFSET_FETCH, offset_fetch.OffsetFetchRequest(groups=[group]), 9)
        return OffsetAnswer(answer.groups[0].error_code, {})

    def describe(self, group_id: str, version: int) -> Any:
        message = describe_groups.DescribeGroupsRequest(groups=[self._name(group_id)])
        return self._ask(Api.DESCRIBE_GROUPS, message, version).groups[0]

    def describe_consumer(self, group_id: str) -> Any:
        message = consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=[self._name(group_id)])
        return self._ask(Api.CONSUMER_GROUP_DESCRIBE, message, 1).groups[0]

    def listen(self, seconds: float) -> None:
        """Take answers for so long; at once when no request is open and only answers were waited for."""
        until_s = self.clock.monotonic_s() + seconds
        while (left_s := until_s - self.clock.monotonic_s()) > 0:
            ready, _, _ = select.select(list(self.open), [], [], left_s)
            for connection in ready:
                self._receive(connection)
            if not self.open and seconds == _ANSWER_S:
                return

    def await_answer(self, ticket: int) -> None:
        """Give a busy machine its time; a scenario that looks for an answer knows that there must be one."""
        until_s = self.clock.monotonic_s() + _PATIENCE_S
        while ticket not in self.shell.answers and self.clock.monotonic_s() < until_s:
            self.listen(_ANSWER_S / 10)

    def _name(self, group_id: str) -> str:
        return f"{group_id}-{self.shell.number}" if group_id else ""

    def _ask(self, api: Api, message: Message, version: int) -> Any:
        caller = self.shell.caller(version)
        for _ in range(_DESCRIBE_RETRIES):
            self._send(api, message, caller)
            self.listen(_ANSWER_S)
            if caller.ticket in self.shell.answers:
                return self.shell.answers.pop(caller.ticket)
        raise AssertionError(f"no answer to {message}")

    def _send(self, api: Api, message: Any, caller: Caller, translate: Any = None) -> None:
        if hasattr(message, "group_id"):
            message = msgspec.structs.replace(message, group_id=self._name(message.group_id))
        host, port = self.shell.address.split(":")
        connection = socket.create_connection((host, int(port)), timeout=10)
        frame = request_frame(api, caller.version, caller.ticket, "client", message)
        connection.sendall(b"".join(bytes(piece) for piece in frame))
        self.open[connection] = (caller.ticket, api, caller.version, translate)

    def _receive(self, connection: socket.socket) -> None:
        ticket, api, version, translate = self.open.pop(connection)
        with connection:
            size = int.from_bytes(_exactly(connection, 4))
            frame = _exactly(connection, size)
        _, position = read_response_header(api, version, frame)
        answer = self.shell.heard[ticket] = decode_response(api, version, frame, position)
        self.shell.answers[ticket] = translate(answer) if translate else answer


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = connection.recv(size - len(found))
        assert piece, "the server closed the connection"
        found += piece
    return found


def _offset_answer(answer: Any) -> OffsetAnswer:
    code = ErrorCode(getattr(answer, "error_code", 0))
    if code or not answer.topics:
        return OffsetAnswer(code, {})
    partition = answer.topics[0].partitions[0]
    return OffsetAnswer(ErrorCode.NONE, {(topic_id(1), partition.partition_index): ErrorCode(partition.error_code)})
