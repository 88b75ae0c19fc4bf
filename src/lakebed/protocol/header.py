"""What stands before every request."""

from __future__ import annotations

import msgspec


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    """Who asks for what. The body starts at the frame's byte `body`."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int
