"""A small HTTP/1.1 server for questions without bodies, one to a connection.

Invariant: a request's head is at most `HEAD_BYTES_MAX` and arrives within `HEAD_TIMEOUT_S`; at most `CONNECTIONS_MAX` are open.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from lakebed.clock import within
from lakebed.config import Address
from lakebed.errors import Unavailable
from lakebed.http.pages import Page, Site, problem

HEAD_BYTES_MAX = 16 * 1024
HEAD_TIMEOUT_S = 10.0
CONNECTIONS_MAX = 256


class HttpServer:
    """Answers GET and HEAD."""

    def __init__(self, pages: Site) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._open = 0

    async def listen(self, address: Address) -> Address:
        """Accept connections at `address`; with port 0 the system picks one."""
        try:
            self._server = await asyncio.start_server(
                self._serve, address.host, address.port, limit=HEAD_BYTES_MAX, reuse_address=True
            )
        except OSError as error:
            raise Unavailable(f"{address} cannot be listened at ({error.strerror})", "Choose another address") from None
        return Address(address.host, self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= CONNECTIONS_MAX:
                writer.write(await self._answer(reader))
                await within(HEAD_TIMEOUT_S, writer.drain())
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            writer.transport.abort()
        finally:
            self._open -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await within(HEAD_TIMEOUT_S, reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            return _encode(problem(431, f"A request's head has at most {HEAD_BYTES_MAX} bytes"), True)
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1.") or not words[1].startswith(b"/"):
            return _encode(problem(400, "This is not a request of HTTP/1.1"), True)
        method, target = words[0], words[1].decode("latin-1")
        if method not in (b"GET", b"HEAD"):
            return _encode(problem(405, "Only GET and HEAD are served"), True)
        return _encode(await self._pages.find(target.partition("?")[0]), method == b"GET")


def _encode(page: Page, with_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}\r\n"
        f"content-type: {page.content_type}\r\ncontent-length: {len(page.body)}\r\n"
        "cache-control: no-store\r\nx-content-type-options: nosniff\r\nconnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (page.body if with_body else b"")
