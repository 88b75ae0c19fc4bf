"""Where write-ahead objects lie: every path of the room is spelled here.

Invariant: an object's name carries its birth time, so its age is known without reading it and without any record of it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from uuid import UUID

from lakebed.clock import birth_ms
from lakebed.errors import Invalid

PREFIX = "wal/v1/"
SUFFIX = ".wo"
DEFAULT_ZONE = "none"
_DAY_MS = 86_400_000

_ZONE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_NAME = re.compile(
    rf"{PREFIX}zone=(?P<zone>{_ZONE.pattern})/domain=(?P<domain>\d{{1,10}})/date=\d{{4}}/\d\d/\d\d/(?P<id>[0-9a-f-]{{36}})\.wo"
)


def check_zone(zone: str) -> str:
    """The zone, or `Invalid` when it cannot be part of a path."""
    if not _ZONE.fullmatch(zone):
        raise Invalid(f"zone {zone!r} cannot be part of a path", "Use letters, digits, '.', '_' and '-', at most 64")
    return zone


def object_path(zone: str, domain: int, object_id: UUID) -> str:
    """`wal/v1/zone=a/domain=0/date=2026/11/15/<uuid7>.wo`, dated by the id's birth in UTC."""
    date = _date(birth_ms(object_id) // _DAY_MS)
    return f"{domain_prefix(zone, domain)}date={date}/{object_id}{SUFFIX}"


def domain_prefix(zone: str, domain: int) -> str:
    """What the paths of one domain's objects in a zone begin with."""
    return f"{PREFIX}zone={zone}/domain={domain}/"


def behind_zone(zone: str) -> str:
    """A key that sorts behind everything of the zone and before any later one."""
    return f"{PREFIX}zone={zone}0"  # '0' is the character after '/'


def zone_of(path: str) -> str | None:
    """The zone that wrote an object, or None when the path is not of ours."""
    match = _NAME.fullmatch(path)
    return match["zone"] if match else None


def id_of(path: str) -> UUID | None:
    """The id of an object, or None when the path is not of a write-ahead object."""
    match = _NAME.fullmatch(path)
    if match is None:
        return None
    try:
        return UUID(match["id"])
    except ValueError:
        return None


def born_ms(path: str) -> int | None:
    """When an object was begun, or None when the path is not of a write-ahead object."""
    identifier = id_of(path)
    return None if identifier is None else birth_ms(identifier)


@lru_cache(maxsize=8)
def _date(day: int) -> str:
    """A day since 1970 as part of a path; remembered, because most objects are born on the same day."""
    return f"{datetime.fromtimestamp(day * _DAY_MS / 1000, UTC):%Y/%m/%d}"
