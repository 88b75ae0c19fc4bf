"""Why a broker does not answer for a group, and the codes by which clients know where to go."""

from __future__ import annotations

from lakebed.errors import Fenced, Unavailable
from lakebed.protocol import ErrorCode, code_for


class NotCoordinator(Fenced):
    """Another broker leads the group's slot, or shall."""


class Loading(Unavailable):
    """This broker leads the slot, but does not know the group yet."""


def group_code(error: Exception) -> ErrorCode:
    """What a client of a group is told."""
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if isinstance(error, Loading) else code_for(error, coordinator=True)
