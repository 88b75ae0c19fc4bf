"""From a frame to the handler of its API, as the protocol's matrix says.

Invariant: what ApiVersions tells and what is served are the same rows. A request that no row covers cannot be answered in a
form its sender would understand, so its connection is closed; ApiVersions alone has an answer for every version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from lakebed.broker.answers import Answer
from lakebed.broker.connection import Connection
from lakebed.broker.context import Call, Context
from lakebed.broker.handlers import HANDLERS, api_versions
from lakebed.broker.offset_repeats import OffsetRepeats
from lakebed.errors import Invalid
from lakebed.protocol import Api, RequestHeader, decode_request, find_row, offset_commit, read_request_header

Handle: TypeAlias = "Callable[[Any, Call, Context], Answer]"
Intercept: TypeAlias = "Callable[[RequestHeader, Any], Answer]"
"""A test may answer any request itself that is read, which repeats are not; None lets the handler do it."""


class Dispatcher:
    """Serves requests with one context."""

    def __init__(self, context: Context, handlers: Mapping[Api, Handle] = HANDLERS) -> None:
        self._context = context
        self._handlers = {api.value: handle for api, handle in handlers.items()}
        self._repeats = OffsetRepeats(context)
        self.intercept: Intercept | None = None

    def __call__(self, frame: memoryview, connection: Connection) -> tuple[RequestHeader, Answer]:
        """Start the request in `frame`."""
        header = read_request_header(frame)
        row = find_row(header.api_key, header.api_version)
        if row is None:
            return _unknown(header)
        request = decode_request(header.api_key, header.api_version, frame, header.body)
        if self.intercept is not None and (answer := self.intercept(header, request)) is not None:
            return header, answer
        call = Call(header.api_version, header.client_id, connection.listener, connection.host)
        answer = self._handlers[header.api_key](request, call, self._context)
        if isinstance(request, offset_commit.OffsetCommitRequest):
            self._repeats.heard(frame, header, request, call, connection)
        return header, answer


def _unknown(header: RequestHeader) -> tuple[RequestHeader, Answer]:
    if header.api_key != Api.API_VERSIONS:
        raise Invalid(
            f"API {header.api_key} version {header.api_version} is not served", "Ask for ApiVersions, and heed it"
        )
    return msgspec.structs.replace(header, api_version=0), api_versions.unsupported()
