"""One connection to one Oxia server: calls with deadlines, and what their failures mean.

Invariant: a write that fails once it may have been sent is `Ambiguous`, unless the server says that it refused it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from lakebed.clock import within
from lakebed.errors import Ambiguous, Invalid, LakebedError, Unavailable

RECORD_MAX_BYTES = 16 * 1024 * 1024
"""The largest value we send. A server's write-ahead segments hold 64 MiB, and one record that does not fit into a segment
stops its shard from taking any write after it."""

_MESSAGE_MAX_BYTES = 64 * 1024 * 1024
_LOOK_FIRST = "Read back what was written before trying again"
_SERVICE = "/io.streamnative.oxia.proto.OxiaClient/"
_OPTIONS = [
    ("grpc.max_receive_message_length", _MESSAGE_MAX_BYTES),
    ("grpc.max_send_message_length", _MESSAGE_MAX_BYTES),
    # The server tolerates a ping every five seconds and closes connections that ask more often.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]


class Wire:
    """The optional packages, loaded when a client is made: gRPC, Oxia's messages and its hash."""

    def __init__(self) -> None:
        # A broker starts its settler while calls are under way; gRPC's care for forks then crashed the new process.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
        try:
            import grpc.aio  # type: ignore[import-untyped]
            import oxia.internal.proto.io.streamnative.oxia.proto as messages
            import xxhash
        except ImportError as missing:
            remedy = "Install the extra: pip install 'lakebed[oxia]'"
            raise Invalid(f"the log store is Oxia, but {missing.name} is not installed", remedy) from missing
        self.grpc, self.aio = grpc, grpc.aio
        # Without this, gRPC waits for its own thread whenever the last connection is thrown away, in whatever thread that
        # happens, and sometimes for ever.
        grpc.aio.init_grpc_aio()
        self.messages: Any = messages
        self._xxh3 = xxhash.xxh3_64_intdigest

    def hash(self, partition: str) -> int:
        """Where a partition key falls on Oxia's ring: the low half of XXH3."""
        return self._xxh3(partition) & 0xFFFFFFFF


class OxiaChannel:
    """Calls to one server. `ask` for questions, `tell` for writes, `stream` for answers in many messages."""

    def __init__(self, wire: Wire, address: str) -> None:
        self.address = address
        self._wire = wire
        self._channel = wire.aio.insecure_channel(address, options=_OPTIONS)
        self._calls: dict[str, Any] = {}

    async def ask(self, method: str, request: Any, answer: str, timeout_s: float) -> Any:
        """One question, one answer; any failure is `Unavailable`."""
        try:
            return await self._unary(method, request, answer)(request, timeout=timeout_s)
        except self._wire.aio.AioRpcError as failure:
            raise self._failed_read(method, failure) from failure
        except self._wire.aio.UsageError as closed:
            raise self._given_up() from closed
        except asyncio.CancelledError as cut:
            _pass_on_if_ours(cut)
            raise self._given_up() from cut

    async def tell(self, method: str, request: Any, answer: str, timeout_s: float) -> Any:
        """One write; what fails now is `Ambiguous`."""
        try:
            return await self._unary(method, request, answer)(request, timeout=timeout_s)
        except self._wire.aio.AioRpcError as failure:
            raise self._failed_write(method, failure) from failure
        except self._wire.aio.UsageError as closed:  # raised before anything is sent
            raise self._given_up() from closed
        except asyncio.CancelledError as cut:
            _pass_on_if_ours(cut)
            raise Ambiguous(f"{method} to Oxia at {self.address} was cut off", _LOOK_FIRST) from cut

    async def stream(self, method: str, request: Any, answer: str, timeout_s: float | None) -> AsyncIterator[Any]:
        """The messages of one answer, each at most `timeout_s` after the one before; None waits without a limit."""
        try:
            call = self._streaming(method, request, answer)(request)
        except self._wire.aio.UsageError as closed:
            raise self._given_up() from closed
        try:
            while (message := await _within_or_ever(timeout_s, call.read())) is not self._wire.aio.EOF:
                yield message
        except self._wire.aio.AioRpcError as failure:
            raise self._failed_read(method, failure) from failure
        except TimeoutError as late:
            raise self._unavailable(f"{method} went silent for {timeout_s} s") from late
        except asyncio.CancelledError as cut:
            _pass_on_if_ours(cut)
            raise self._given_up() from cut
        finally:
            call.cancel()

    async def ready(self) -> None:
        """Return when the connection stands; to be awaited before any call."""
        try:
            if self._channel.get_state(try_to_connect=True) is not self._wire.grpc.ChannelConnectivity.READY:
                await self._channel.channel_ready()
        except self._wire.aio.UsageError as closed:
            raise self._given_up() from closed

    async def close(self, grace_s: float | None = None) -> None:
        """Drop the connection; calls under way get `grace_s` to finish."""
        await self._channel.close(grace_s)

    def _unary(self, method: str, request: Any, answer: str) -> Any:
        return self._call(self._channel.unary_unary, method, request, answer)

    def _streaming(self, method: str, request: Any, answer: str) -> Any:
        return self._call(self._channel.unary_stream, method, request, answer)

    def _call(self, kind: Any, method: str, request: Any, answer: str) -> Any:
        found = self._calls.get(method)
        if found is None:
            encode, decode = type(request).SerializeToString, getattr(self._wire.messages, answer).FromString
            found = kind(_SERVICE + method, request_serializer=encode, response_deserializer=decode)
            self._calls[method] = found
        return found

    def _failed_read(self, method: str, failure: Any) -> LakebedError:
        return self._refused(method, failure) or self._unavailable(f"{method} failed with {failure.code().name}")

    def _failed_write(self, method: str, failure: Any) -> LakebedError:
        problem = f"{method} to Oxia at {self.address} ended with {failure.code().name}"
        return self._refused(method, failure) or Ambiguous(problem, _LOOK_FIRST)

    def _refused(self, method: str, failure: Any) -> Invalid | None:
        codes = self._wire.grpc.StatusCode
        final = {codes.INVALID_ARGUMENT, codes.UNIMPLEMENTED, codes.UNAUTHENTICATED, codes.PERMISSION_DENIED}
        final.add(codes.RESOURCE_EXHAUSTED)  # gRPC's word for a message that is too large
        if failure.code() not in final:
            return None
        problem = f"Oxia at {self.address} refused {method} with {failure.code().name}: {failure.details()}"
        return Invalid(problem, "Check the server's version and its access rules")

    def _given_up(self) -> Unavailable:
        return self._unavailable("the connection was given up on this side")

    def _unavailable(self, problem: str) -> Unavailable:
        return Unavailable(f"Oxia at {self.address}: {problem}", "Check that the server runs; it is tried again")


def _pass_on_if_ours(cut: asyncio.CancelledError) -> None:
    """gRPC answers with a cancellation when the connection is closed here; one asked of our own task goes on its way."""
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise cut


async def _within_or_ever(timeout_s: float | None, work: Any) -> Any:
    return await work if timeout_s is None else await within(timeout_s, work)
