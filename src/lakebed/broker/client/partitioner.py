"""Which partition a key goes to, as Kafka's own clients choose: murmur2 of the key, sign cut off, modulo the partitions."""

from __future__ import annotations

_M, _SEED, _MASK = 0x5BD1E995, 0x9747B28C, 0xFFFFFFFF


def partition_for(key: bytes, partitions: int) -> int:
    """The partition of `key`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """The 32-bit hash, unsigned."""
    size = len(data)
    mixed = (_SEED ^ size) & _MASK
    whole = size & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        mixed = mixed * _M & _MASK ^ word
    if size > whole:
        mixed = (mixed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    mixed = (mixed ^ mixed >> 13) * _M & _MASK
    return mixed ^ mixed >> 15
