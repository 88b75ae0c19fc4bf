"""One connection to a broker: a question, then its answer.

Invariant: answers come in the order of the questions, which the broker promises and the correlation id proves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from lakebed.clock import within
from lakebed.config import Address
from lakebed.errors import Closed, Corrupt, Unavailable
from lakebed.protocol import (
    MATRIX,
    SIZE_BYTES,
    Api,
    ErrorCode,
    Message,
    api_versions,
    decode_response,
    read_response_header,
    request_frame,
)

RESPONSE_BYTES_MAX = 512 * 1024 * 1024
_FIRST_VERSIONS = 3
_ROWS = {int(api): row for api, row in MATRIX.items()}


class BrokerConnection:
    """Speaks each API in the newest version that both sides know."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str, wait_s: float):
        self._reader, self._writer = reader, writer
        self._client_id = client_id
        self._wait_s = wait_s
        self._correlation_id = 0
        self._versions: dict[int, int] = {}
        self._turn = asyncio.Lock()

    @classmethod
    async def open(cls, address: Address, client_id: str, wait_s: float) -> BrokerConnection:
        """Connect and agree on versions."""
        try:
            reader, writer = await within(wait_s, asyncio.open_connection(address.host, address.port))
        except (OSError, TimeoutError) as error:
            raise Unavailable(
                f"no broker answers at {address} ({_why(error)})", "Start one with 'lakebed up'"
            ) from None
        connection = cls(reader, writer, client_id, wait_s)
        await connection._agree()
        return connection

    def version(self, api: Api) -> int:
        """The version that `ask` will use."""
        if api not in self._versions:
            raise Unavailable(f"the broker does not serve {api.name}", "Use a broker that does")
        return self._versions[api]

    async def ask(self, api: Api, request: Message, wait_s: float | None = None) -> Message:
        """The answer to `request`."""
        return await self._exchange(api, self.version(api), request, wait_s or self._wait_s)

    async def tell(self, api: Api, request: Message) -> None:
        """Send a request that has no answer."""
        async with self._turn:
            self._correlation_id += 1
            self._writer.writelines(
                request_frame(api, self.version(api), self._correlation_id, self._client_id, request)
            )
            await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)

    async def _agree(self) -> None:
        for version in (_FIRST_VERSIONS, 0):
            request = api_versions.ApiVersionsRequest(
                client_software_name="lakebed" if version else "", client_software_version="1" if version else ""
            )
            answer = await self._exchange(Api.API_VERSIONS, version, request, self._wait_s)
            assert isinstance(answer, api_versions.ApiVersionsResponse)
            if answer.error_code == ErrorCode.NONE:
                self._choose(answer.api_keys)
                return
        raise Unavailable("the broker does not say what it speaks", "Check that the address is a Kafka listener's")

    def _choose(self, api_keys: Sequence[api_versions.ApiVersion]) -> None:
        for told in api_keys:
            row = _ROWS.get(told.api_key)
            if row is not None and told.max_version >= row.versions[0] and told.min_version <= row.versions[-1]:
                self._versions[told.api_key] = min(told.max_version, row.versions[-1])

    async def _exchange(self, api: Api, version: int, request: Message, wait_s: float) -> Message:
        async with self._turn:
            self._correlation_id += 1
            number = self._correlation_id
            try:
                self._writer.writelines(request_frame(api, version, number, self._client_id, request))
                await within(wait_s, self._writer.drain())
                frame = await within(wait_s, self._read_frame())
            except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                self._writer.close()
                raise Closed(f"the broker did not answer {api.name} ({_why(error)})", "Try again") from None
        found, body = read_response_header(api, version, frame)
        if found != number:
            raise Corrupt(f"an answer to request {found} came for request {number}", "Report it: this is a bug")
        return decode_response(api, version, frame, body)

    async def _read_frame(self) -> bytes:
        size = int.from_bytes(await self._reader.readexactly(SIZE_BYTES), "big")
        if not SIZE_BYTES <= size <= RESPONSE_BYTES_MAX:
            raise Corrupt(f"an answer of {size} bytes", "Check that the address is that of a Kafka listener")
        return await self._reader.readexactly(size)


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or type(error).__name__
