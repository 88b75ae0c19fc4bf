"""Ten thousand frames that no client would send: each is answered or its connection closed, and nobody else notices."""

from __future__ import annotations

import asyncio
import os
import random
import resource

from lakebed.config import Address
from lakebed.protocol import MATRIX, Api, Standing
from tests.unit.broker.conftest import StartBroker
from tests.unit.broker.requests import append, batch_of, fetch_from, make_topic, metadata_of, produce_to, read
from tests.unit.broker.test_every_version import empty_request
from tests.unit.broker.wire import frame_of, wired

FRAMES = 10_000
FRAMES_PER_CONNECTION = 2
CONNECTIONS_AT_ONCE = 20
MEMORY_GROWTH_MAX_BYTES = 150_000_000
SEED = int(os.environ.get("LAKEBED_FUZZ_SEED", "20261115"))


def seeds() -> list[bytes]:
    """Frames as they should be: every API in its first and last version, and some with much in them."""
    rows = [row for row in MATRIX.values() if row.standing is not Standing.DORMANT]
    frames = [frame_of(row.api, v, empty_request(row.api)) for row in rows for v in (row.versions[0], row.versions[-1])]
    produce = produce_to("fuzz", (0, batch_of(b"a", None, b"c" * 500)), (1, batch_of(b"x" * 3000)))
    frames += [frame_of(Api.PRODUCE, version, produce) for version in (3, 7, 9, 12)]
    frames += [frame_of(Api.FETCH, version, fetch_from("fuzz", 0)) for version in (4, 7, 12)]
    frames += [frame_of(Api.METADATA, version, metadata_of("fuzz", create=False)) for version in (4, 9, 12)]
    return frames


def mutated(chance: random.Random, frame: bytes) -> bytes:
    """One of the ways in which bytes go wrong."""
    way, body = chance.randrange(8), bytearray(frame)
    at = chance.randrange(len(body))
    if way == 0:
        return chance.randbytes(chance.randrange(1, 200))
    if way == 1:
        return bytes(body[:at])
    if way == 2:
        body[at] ^= 1 << chance.randrange(8)
    elif way == 3:
        for _ in range(chance.randrange(1, 10)):
            body[chance.randrange(4, len(body))] = chance.randrange(256)
    elif way == 4:
        body[at:at] = chance.randbytes(chance.randrange(1, 20))
    elif way == 5:
        del body[at : at + chance.randrange(1, 20)]
    elif way == 6:
        body[max(4, at) : max(4, at) + 4] = chance.choice([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0"])
    else:
        body[4:8] = chance.randrange(80).to_bytes(2, "big") + chance.randrange(20).to_bytes(2, "big")
    if way != 1 and chance.random() < 0.9:
        body[:4] = (len(body) - 4).to_bytes(4, "big", signed=True)
    return bytes(body)


async def throw(address: Address, frames: list[bytes]) -> None:
    """Send frames, then leave; the broker may hang up at any time."""
    try:
        async with wired(address) as wire:
            for frame in frames:
                wire.writer.write(frame)
            wire.writer.write_eof()
            async with asyncio.timeout(20):
                await wire.reader.read()
    except (ConnectionError, OSError):
        return


async def test_ten_thousand_fuzzed_frames_harm_nobody(start_broker: StartBroker) -> None:
    broker = await start_broker(memory_bytes=32_000_000)
    chance, whole = random.Random(SEED), seeds()
    async with wired(broker.kafka) as witness:
        await make_topic(witness, "witness")
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        rounds = FRAMES // FRAMES_PER_CONNECTION // CONNECTIONS_AT_ONCE
        for number in range(rounds):
            thrown = [
                [mutated(chance, chance.choice(whole)) for _ in range(FRAMES_PER_CONNECTION)]
                for _ in range(CONNECTIONS_AT_ONCE)
            ]
            await asyncio.gather(*(throw(broker.kafka, frames) for frames in thrown))
            assert (await append(witness, "witness", batch_of(b"%d" % number))).base_offset == number
        found = await read(witness, fetch_from("witness", 0))
        assert found.high_watermark == rounds
    grown_bytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) * 1024
    assert grown_bytes < MEMORY_GROWTH_MAX_BYTES
    assert broker.app.metrics.value("lakebed_request_held_bytes") == 0
