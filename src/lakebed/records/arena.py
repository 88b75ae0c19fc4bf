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


class Arena:
    """Named arrays of one decoder or encoder. Not for use by two threads at once."""

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}

    def take(self, name: str, kind: type[np.generic], size: int) -> NDArray[Any]:
        """An array of at least `size` entries with any content."""
        array = self._arrays.get(name)
        if array is not None and array.size >= size and sys.getrefcount(array) <= _OWN_REFERENCES:
            return array
        fresh = np.empty(max(size + size // 4, 64), kind)
        self._arrays[name] = fresh
        return fresh
