"""Commits, bundles and checkpoints: bytes to values and back, and what is refused."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import Corrupt, Invalid
from lakebed.kernel import Add, Commit, Delete, ForgetStreams, Put, Puts, Registry, Remove, Snapshot, Version
from lakebed.kernel.bundle import BUNDLE_SIZE, bundle_first, bundle_name, decode_bundle, encode_bundle
from lakebed.kernel.checkpoint import checkpoint_name, checkpoint_version, decode_checkpoint, encode_checkpoint
from lakebed.kernel.state import Draft
from tests.logs import REGISTRY, state_bytes

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
operations = st.one_of(
    st.builds(Put.of, st.text(), json_values),
    st.builds(Puts.of, st.dictionaries(st.text(), json_values.map(msgspec.json.encode), max_size=4)),
    st.builds(Delete, key=st.text()),
    st.builds(
        Add,
        txn=st.text(),
        stream=st.integers(0, 5),
        offset_start=st.integers(0, 2**60),
        offset_end=st.integers(0, 2**60),
        segment=st.text(),
        size=st.integers(0, 2**31),
        timestamp_min=st.integers(-1, 2**60),
        batches=st.text("abc=", max_size=9),
    ),
    st.builds(Remove, stream=st.integers(0, 5), offset_start=st.integers(0, 9), offset_end=st.integers(0, 9)),
    st.builds(ForgetStreams, streams=st.lists(st.integers(0, 5), max_size=3)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(operations, max_size=6), st.text(), st.booleans())
def test_commit_round_trips_on_one_line(found: list, txn_id: str, hint: bool) -> None:
    commit = Commit(7, "2026-11-15T06:20:31.125Z", txn_id, found, hint)
    body = REGISTRY.codec.encode(commit)
    assert b"\n" not in body
    back = REGISTRY.codec.decode(body, Version(7), "log")
    assert (back.txn_id, list(back.operations), back.checkpoint_hint) == (txn_id, found, hint)
    assert json.loads(body)["version"] == 7


GOOD = json.loads(REGISTRY.codec.encode(Commit(7, "2026-11-15T06:20:31.125Z", "t", [Put.of("k", 1)], False)))
BAD_COMMITS: dict[str, tuple[bytes, type[Exception]]] = {
    "empty": (b"", Corrupt),
    "not JSON": (b"\xff\xfe{", Corrupt),
    "truncated": (json.dumps(GOOD).encode()[:-9], Corrupt),
    "another number": (json.dumps(GOOD | {"version": 8}).encode(), Corrupt),
    "a field too many": (json.dumps(GOOD | {"extra": 1}).encode(), Corrupt),
    "a field too few": (json.dumps({k: v for k, v in GOOD.items() if k != "txn_id"}).encode(), Corrupt),
    "a field of another type": (json.dumps(GOOD | {"operations": 5}).encode(), Corrupt),
    "an operation's field too many": (
        json.dumps(GOOD | {"operations": [{"type": "delete", "key": "k", "more": 1}]}).encode(), Corrupt,
    ),
    "unknown kind": (json.dumps(GOOD | {"operations": [{"type": "merge"}]}).encode(), Invalid),
    "an array": (b"[]", Corrupt),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_COMMITS)
def test_bad_commit_is_refused_with_its_file_and_a_remedy(case: str) -> None:
    body, kind = BAD_COMMITS[case]
    with pytest.raises(kind) as caught:
        REGISTRY.codec.decode(body, Version(7), "some/log")
    assert "some/log/00000000000000000007.json" in caught.value.problem  # type: ignore[attr-defined]
    assert caught.value.remedy  # type: ignore[attr-defined]


def bodies(first: int) -> list[bytes]:
    return [
        REGISTRY.codec.encode(Commit(first + at, "2026-11-15T06:20:31.125Z", f"t{at}", [Put.of("k\n", at)], False))
        for at in range(BUNDLE_SIZE)
    ]


def test_bundle_round_trips() -> None:
    assert decode_bundle(encode_bundle(256, bodies(256)), bundle_name(256)) == bodies(256)
    assert bundle_first(bundle_name(256)) == 256
    assert bundle_first(checkpoint_name(256, "none")) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d[:-1],
        lambda d: d[: d.index(b"\n")],
        lambda d: b"",
        lambda d: d.replace(b"t17", b"t71"),
        lambda d: d.replace(b'"first":256', b'"first":512'),
        lambda d: d + b"\n{}",
        lambda d: b"\xff" + d,
    ],
)
def test_damaged_bundle_is_refused(damage: object) -> None:
    document = damage(encode_bundle(256, bodies(256)))  # type: ignore[operator]
    with pytest.raises(Corrupt, match=r"0256\.bundle\.json"):
        decode_bundle(document, bundle_name(256))


def some_state(count: int = 700) -> Snapshot:
    draft = Draft(Snapshot.empty(REGISTRY), REGISTRY)
    for version in range(count):
        draft.apply(
            [
                Put.of(f"key/{version % 300}é", {"n": version, "text": "line\nbreak"}),
                Add(
                    stream=version % 3,
                    offset_start=version // 3,
                    offset_end=version // 3 + 1,
                    segment=f"wal/{version // 5}",
                    size=version,
                    batches="" if version % 2 else "YWJj",
                ),
            ],
            version,
        )
    return draft.freeze(Version(count - 1), "2026-11-15T06:20:31.125Z")


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_checkpoint_round_trips_to_equal_bytes_and_weight(compression: str) -> None:
    state = some_state()
    name = checkpoint_name(state.version, compression)
    document = encode_checkpoint(state, "log-1", compression)
    back, log_id = decode_checkpoint(document, name, REGISTRY, "log-1")
    assert log_id == "log-1"
    assert (back.version, back.timestamp) == (state.version, state.timestamp)
    assert state_bytes(back) == state_bytes(state)
    assert list(back.scan()) == list(state.scan())
    assert abs(back.weight_bytes - state.weight_bytes) <= 0.02 * state.weight_bytes
    assert checkpoint_version(name) == state.version


def test_weight_is_about_the_size_of_a_checkpoint_and_never_much_less() -> None:
    for count in (1, 10, 700):
        state = some_state(count)
        assert len(encode_checkpoint(state, "log-1")) <= 1.1 * state.weight_bytes + 512


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize(
    "damage",
    [lambda d: d[:-1], lambda d: d[: len(d) // 2], lambda d: b"", lambda d: d[:100] + bytes([d[100] ^ 4]) + d[101:]],
)
def test_torn_or_altered_checkpoint_is_refused(damage: object, compression: str) -> None:
    state = some_state(50)
    name = checkpoint_name(state.version, compression)
    with pytest.raises(Corrupt, match=name):
        decode_checkpoint(damage(encode_checkpoint(state, "log-1", compression)), name, REGISTRY)  # type: ignore[operator]


def test_checkpoint_of_another_version_log_or_format_is_refused() -> None:
    document = encode_checkpoint(some_state(50), "log-1")
    with pytest.raises(Corrupt, match="says it is version 49"):
        decode_checkpoint(document, checkpoint_name(48, "none"), REGISTRY)
    with pytest.raises(Corrupt, match="belongs to the log log-1"):
        decode_checkpoint(document, checkpoint_name(49, "none"), REGISTRY, "log-2")
    with pytest.raises(Invalid, match="format 2"):
        decode_checkpoint(document.replace(b'"format":1', b'"format":2', 1), checkpoint_name(49, "none"), REGISTRY)


def test_checkpoint_with_parts_from_the_future_is_refused_not_misread() -> None:
    class Extra:
        name = "extra"
        operations = ()

        def empty(self) -> object:
            return Lines([])

        def draft(self, base: object) -> object:
            return base

        def load(self, lines: object) -> object:
            return Lines(list(lines))  # type: ignore[call-overload]

    class Lines:
        weight_bytes = 1

        def __init__(self, lines: list[bytes]) -> None:
            self.lines = lines

        def dump(self) -> object:
            return iter(self.lines)

    larger = Registry([*REGISTRY.parts.values(), Extra()])  # type: ignore[list-item]
    state = Snapshot(Version(3), "t", {**some_state(3).parts, "extra": Lines([msgspec.json.encode(1)])})  # type: ignore[dict-item]
    document = encode_checkpoint(state, "log-1")
    assert decode_checkpoint(document, checkpoint_name(3, "none"), larger)[0].version == 3
    with pytest.raises(Invalid, match="extra"):
        decode_checkpoint(document, checkpoint_name(3, "none"), REGISTRY)
