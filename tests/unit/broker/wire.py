"""A bare connection to a broker: bytes out, frames in; for tests that do what no client would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lakebed.config import Address
from lakebed.protocol import Message, decode_response, read_response_header, request_frame

PATIENCE_S = 10.0


class Wire:
    """One socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, api: int, version: int, request: Message, correlation_id: int = 1, client_id: str = "test") -> None:
        self.writer.write(frame_of(api, version, request, correlation_id, client_id))

    async def frame(self) -> bytes:
        """The next frame, without its size."""
        size = int.from_bytes(await self._within(self.reader.readexactly(4)), "big")
        return await self._within(self.reader.readexactly(size))

    async def answer(self, api: int, version: int) -> tuple[int, Message]:
        """The next answer, with its correlation id."""
        frame = await self.frame()
        correlation_id, body = read_response_header(api, version, frame)
        return correlation_id, decode_response(api, version, frame, body)

    async def ask(self, api: int, version: int, request: Message) -> Message:
        self.send(api, version, request)
        return (await self.answer(api, version))[1]

    async def closed(self) -> bool:
        """Whether the broker hangs up, in good time."""
        try:
            return await self._within(self.reader.read()) == b""
        except ConnectionResetError:
            return True

    async def _within(self, work: object) -> bytes:
        return await asyncio.wait_for(work, PATIENCE_S)  # type: ignore[arg-type]


@asynccontextmanager
async def wired(address: Address) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()


def frame_of(api: int, version: int, request: Message, correlation_id: int = 1, client_id: str = "test") -> bytes:
    """A whole request with its size."""
    return b"".join(request_frame(api, version, correlation_id, client_id, request))
