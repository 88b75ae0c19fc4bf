"""Paths of write-ahead objects: spelled once, and read back."""

from __future__ import annotations

import pytest

from lakebed.clock import make_uuid7
from lakebed.errors import Invalid
from lakebed.wal import born_ms, id_of, object_path
from lakebed.wal.paths import behind_zone, check_zone, zone_of

BORN = 1_763_187_631_125
OBJECT = make_uuid7(BORN, 99)


def test_path_carries_zone_domain_date_and_birth() -> None:
    path = object_path("eu-1a", 7, OBJECT)
    assert path == f"wal/v1/zone=eu-1a/domain=7/date=2025/11/15/{OBJECT}.wo"
    assert (born_ms(path), id_of(path), zone_of(path)) == (BORN, OBJECT, "eu-1a")


@pytest.mark.parametrize("path", ["", "wal/v1/x", "wal/v1/zone=a/domain=0/date=2025/11/15/notes.txt", "lakebed.json"])
def test_foreign_names_have_no_birth(path: str) -> None:
    assert born_ms(path) is None


@pytest.mark.parametrize("zone", ["", "a/b", "..", "é", "a" * 65])
def test_zone_that_cannot_be_a_path_is_refused(zone: str) -> None:
    with pytest.raises(Invalid):
        check_zone(zone)


def test_key_behind_a_zone_lies_between_it_and_the_next() -> None:
    zones = ["a", "a-b", "a.b", "a0", "aa", "b"]
    paths = sorted(object_path(zone, 0, OBJECT) for zone in zones)
    seen = []
    after = ""
    while True:
        path = next((path for path in paths if path > after), None)
        if path is None:
            break
        seen.append(zone_of(path))
        after = behind_zone(seen[-1] or "")
    assert sorted(filter(None, seen)) == zones
