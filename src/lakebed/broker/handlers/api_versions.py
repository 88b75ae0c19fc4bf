"""ApiVersions, v0-4. An unknown version is answered in the form of v0, with the list all the same, so that a newer client
can choose again. v3 adds the client's name; v4 may report features with a lowest version of 0."""

from __future__ import annotations

from functools import cache

from lakebed.broker.context import Call, Context
from lakebed.protocol import Api, ErrorCode, advertised
from lakebed.protocol import api_versions as wire

API, VERSIONS = Api.API_VERSIONS, range(5)


def handle(request: wire.ApiVersionsRequest, call: Call, context: Context) -> wire.ApiVersionsResponse:
    """Say what is served."""
    return wire.ApiVersionsResponse(api_keys=_keys())


def unsupported() -> wire.ApiVersionsResponse:
    """For a version that is not known, to be sent as version 0."""
    return wire.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_keys())


@cache
def _keys() -> tuple[wire.ApiVersion, ...]:
    return tuple(wire.ApiVersion(api_key=key, min_version=first, max_version=last) for key, first, last in advertised())
