"""Arrays that are filled again and again, so that a pass does not pay for fresh memory.

Invariant: an array is handed out again only when nothing refers to it any more, so a result stays as it is for as long as
somebody holds it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

_OWN_REFERENCES = 3  # the arena's, the local variable's and the counter's argument
_KEPT = 2
"""Of each name: one result is still being used while the next one is made."""


class Arena:
    """Named arrays of one decoder or encoder. Not for use by two threads at once."""

    def __init__(self) -> None:
        self._arrays: dict[str, list[NDArray[Any]]] = {}

    def take(self, name: str, kind: type[np.generic], size: int) -> NDArray[Any]:
        """An array of at least `size` entries with any content."""
        arrays = self._arrays.setdefault(name, [])
        for array in arrays:
            if array.size >= size and sys.getrefcount(array) <= _OWN_REFERENCES:
                return array
        fresh = np.empty(max(size + size // 4, 64), kind)
        arrays.append(fresh)
        del arrays[:-_KEPT]
        return fresh
