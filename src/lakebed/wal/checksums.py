"""The CRC32C of bytes that follow each other, from the CRCs of the pieces: what has been summed once is not read again.

A CRC is linear: putting n zero bytes behind some bytes multiplies their CRC by a fixed matrix, and n is a sum of powers of two.
"""

from __future__ import annotations

from array import array
from functools import cache
from typing import TypeAlias

from crc32c import crc32c

WORTH_BYTES = 64 * 1024
"""Fewer bytes are summed sooner than their sum is joined."""

_Table: TypeAlias = "array[int]"
_Tables: TypeAlias = "tuple[_Table, _Table, _Table, _Table]"
"""What becomes of each byte of a CRC, from the lowest to the highest."""


def joined(crc: int, next_crc: int, next_bytes: int) -> int:
    """The CRC of bytes with `crc` and, behind them, `next_bytes` bytes with `next_crc`."""
    power = 0
    while next_bytes:
        if next_bytes & 1:
            low, second, third, high = _behind(power)
            crc = low[crc & 255] ^ second[crc >> 8 & 255] ^ third[crc >> 16 & 255] ^ high[crc >> 24]
        next_bytes >>= 1
        power += 1
    return crc ^ next_crc


@cache
def _behind(power: int) -> _Tables:
    """What 2^power zero bytes do to a CRC."""
    if not power:
        images = [_behind_one_zero(1 << bit) for bit in range(32)]
    else:
        low, second, third, high = _behind(power - 1)
        halfway = [table[1 << bit] for table in (low, second, third, high) for bit in range(8)]
        images = [low[c & 255] ^ second[c >> 8 & 255] ^ third[c >> 16 & 255] ^ high[c >> 24] for c in halfway]
    return _table(images[:8]), _table(images[8:16]), _table(images[16:24]), _table(images[24:])


def _behind_one_zero(crc: int) -> int:
    return crc32c(b"\0", crc) ^ crc32c(b"\0", 0)


def _table(images: list[int]) -> _Table:
    """The images of all bytes from those of their bits."""
    table = [0]
    for image in images:
        table += [image ^ other for other in table]
    return array("I", table)
