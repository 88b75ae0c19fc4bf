"""Codecs: what clients write is read, what we write clients read, and a bomb takes no memory."""

from __future__ import annotations

import gzip
import resource
import struct

import cramjam
import lz4.frame
import pytest
import zstandard
from aiokafka.codec import (
    gzip_decode,
    gzip_encode,
    lz4_decode,
    lz4_encode,
    snappy_decode,
    snappy_encode,
    zstd_decode,
    zstd_encode,
)

from lakebed.errors import Invalid
from lakebed.records import Codec, compress, decompress, decompress_into

COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
DATA = [b"", b"x", b"lake" * 50_000, bytes(range(256)) * 300]
CLIENTS = {
    Codec.GZIP: (gzip_encode, gzip_decode),
    Codec.SNAPPY: (snappy_encode, snappy_decode),
    Codec.LZ4: (lz4_encode, lz4_decode),
    Codec.ZSTD: (zstd_encode, zstd_decode),
}


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", DATA, ids=len)
def test_data_comes_back_at_exactly_its_size(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    if data:
        with pytest.raises(Invalid):
            decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_client_and_we_read_each_other(codec: Codec) -> None:
    encode, decode = CLIENTS[codec]
    for data in DATA[1:]:
        assert decompress(codec, encode(data), len(data)) == data
        assert decode(bytes(compress(codec, data))) == data


def test_bare_snappy_block_is_read() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(DATA[2])), 1 << 20) == DATA[2]


def test_lz4_blocks_are_independent() -> None:
    packed = bytes(compress(Codec.LZ4, DATA[2]))
    assert lz4.frame.get_frame_info(packed)["block_linked"] is False


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (Codec.GZIP, gzip.compress(b"ab") + gzip.compress(b"cd")),
        (Codec.LZ4, lz4.frame.compress(b"ab") + lz4.frame.compress(b"cd")),
        (Codec.ZSTD, zstandard.compress(b"ab") + zstandard.compress(b"cd")),
    ],
    ids=["gzip", "lz4", "zstd"],
)
def test_frames_in_a_row_are_one_text(codec: Codec, packed: bytes) -> None:
    assert decompress(codec, packed, 4) == b"abcd"


@pytest.mark.parametrize("codec", COMPRESSED)
def test_truncated_data_is_refused(codec: Codec) -> None:
    packed = bytes(compress(codec, DATA[3]))
    for cut in (1, 4, len(packed) // 2, len(packed) - 1):
        with pytest.raises(Invalid):
            decompress(codec, packed[: len(packed) - cut], 1 << 20)


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_unknown_codec_is_refused(codec: int) -> None:
    with pytest.raises(Invalid):
        decompress(codec, b"x", 10)
    with pytest.raises(Invalid):
        compress(codec, b"x")


def bombs() -> list[tuple[Codec, bytes]]:
    """Small inputs that claim or unfold to 64 MB and more."""
    size = 64 << 20
    zeros = bytes(1 << 20)
    streamed = zstandard.ZstdCompressor().compressobj()
    open_ended = b"".join(streamed.compress(zeros) for _ in range(size >> 20)) + streamed.flush()
    return [
        (Codec.GZIP, gzip.compress(bytes(size), 9)),
        (Codec.LZ4, lz4.frame.compress(bytes(size), store_size=True)),
        (Codec.LZ4, lz4.frame.compress(bytes(size), store_size=False)),
        (Codec.ZSTD, zstandard.compress(bytes(size))),
        (Codec.ZSTD, open_ended),
        (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\x00" * 20),
        (Codec.SNAPPY, b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, 25) + b"\xff\xff\xff\xff\x0f" + b"\x00" * 20),
        (Codec.SNAPPY, b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, 2**31 - 1)),
    ]


def test_bombs_are_refused_within_their_room() -> None:
    made = bombs()
    room = memoryview(bytearray(1 << 20))
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for codec, bomb in made:
        with pytest.raises(Invalid):
            decompress_into(codec, bomb, room)
        with pytest.raises(Invalid):
            decompress(codec, bomb, 1 << 20)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 32 << 10
