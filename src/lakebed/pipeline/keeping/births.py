"""When a settled file was begun, told by its name: attempts carry an id that is made of time.

Invariant: a file is never taken for older than it is. Of several ids the youngest counts; without one, the store's own time does.
"""

from __future__ import annotations

import re
from uuid import UUID

from lakebed.clock import birth_ms
from lakebed.objects import ObjectInfo
from lakebed.tables import read_data_file

_UUID7 = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?7[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}")


def born_ms(item: ObjectInfo) -> int:
    """The birth of a stored file."""
    name = read_data_file(item.key)
    ids = [] if name is None else _UUID7.findall(name.attempt_id)
    return max((birth_ms(UUID(each)) for each in ids), default=item.modified_ms)


def attempt_born_ms(path: str) -> int:
    """The birth of a file known by its path alone; 0 when that does not tell."""
    name = read_data_file(path)
    ids = [] if name is None else _UUID7.findall(name.attempt_id)
    return max((birth_ms(UUID(each)) for each in ids), default=0)
