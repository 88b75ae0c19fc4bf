"""Who sent a request, as far as a group cares."""

from __future__ import annotations

import msgspec


class Caller(msgspec.Struct, frozen=True, gc=False):
    """`ticket` names the request, so that its answer finds the way back; `version` is that of the API."""

    ticket: int
    version: int
    client_id: str = ""
    client_host: str = ""
