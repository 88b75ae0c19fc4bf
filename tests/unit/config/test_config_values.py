"""Durations, sizes, addresses and secrets as people write them."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.config import Address, ByteCount, Seconds, Secret
from lakebed.config.values import (
    format_duration,
    format_size,
    parse_address,
    parse_duration,
    parse_size,
    parse_switch,
    parse_whole,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("10s", 10),
        ("7d", 604_800),
        ("2w", 1_209_600),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("0.07s", 0.07),
    ],
)
def test_written_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "ten seconds", "-5s", "5 fortnights", "1e3s", "s", "10s!", "0.5ms", "٣s"])
def test_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is "):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("512", 512), ("64kB", 64_000), ("4MB", 4_000_000), ("8MiB", 8 << 20), ("1.5 GB", 1_500_000_000), ("7b", 7)],
)
def test_written_size_is_read_in_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "4XB", "0.5B", "4 M B", "1e9"])
def test_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is "):
        parse_size(text)


@given(st.integers(0, 10**12))
@settings(max_examples=200)
def test_printed_duration_reads_as_the_same(millis: int) -> None:
    assert parse_duration(format_duration(Seconds(millis / 1000))) == millis / 1000


@given(st.integers(0, 10**18 - 1))
@settings(max_examples=200)
def test_printed_size_reads_as_the_same(size: int) -> None:
    assert parse_size(format_size(ByteCount(size))) == size


@pytest.mark.parametrize("text", ["127.0.0.1:9092", "localhost:0", "[::1]:65535", "broker-1.example:9092"])
def test_printed_address_reads_as_the_same(text: str) -> None:
    assert str(parse_address(text)) == text


@pytest.mark.parametrize(
    "text", ["", "localhost", ":9092", "::1:9092", "host:", "host:99999", "host:-1", "h ost:1", "u@h:1"]
)
def test_text_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is |has "):
        parse_address(text)


def test_numbers_and_switches_take_only_their_own_texts() -> None:
    assert parse_whole("10_000") == 10_000
    assert parse_switch("True") is True
    for text in ("1.5", "0x10", "ten", "", "1e3"):
        with pytest.raises(ValueError, match="whole"):
            parse_whole(text)
    for text in ("yes", "1", ""):
        with pytest.raises(ValueError, match="neither"):
            parse_switch(text)


def test_secret_shows_itself_only_when_asked() -> None:
    secret = Secret("hunter2")
    assert "hunter2" not in f"{secret} {secret!r} {secret!s} {[secret]}"
    assert secret.reveal() == "hunter2"
    assert secret == Secret("hunter2") != Secret("other")
    with pytest.raises(TypeError):
        pickle.dumps(secret)


def test_address_is_a_value() -> None:
    assert parse_address("[::1]:1") == Address("::1", 1)
