"""The keys of a log by themselves: what changed lately and what is sorted are one map, whichever way it is looked at."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.kernel import Delete, Put, Puts, Version
from lakebed.kernel.keys import Keys, KeysPart

KEYS = [f"k{number}" for number in range(8)]
changes = st.dictionaries(st.sampled_from(KEYS), st.none() | st.integers(0, 10**6), min_size=1, max_size=6)
looks = st.sampled_from(["get", "scan", "nothing"])


def changed(keys: Keys, by: dict[str, int | None], version: int) -> Keys:
    draft = KeysPart().draft(keys)
    put = {key: b"%d" % value for key, value in by.items() if value is not None}
    draft.apply(Puts.of(put), version)
    for key in by:
        if key not in put:
            draft.apply(Delete(key=key), version)
    return draft.freeze()


def content(keys: Keys) -> dict[str, tuple[bytes, int]]:
    return {key: (entry.value, entry.version) for key, entry in keys.scan()}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(changes, looks), max_size=20))
def test_keys_are_as_a_plain_map_and_old_versions_stay(steps: list[tuple[dict[str, int | None], str]]) -> None:
    part = KeysPart()
    keys, model = part.empty(), {}
    past = []
    for version, (by, look) in enumerate(steps):
        keys = changed(keys, by, version)
        model = {key: value for key, value in model.items() if key not in by}
        model |= {key: (b"%d" % value, version) for key, value in by.items() if value is not None}
        past.append((keys, model))
        if look == "get":
            for key in KEYS:
                entry = keys.get(key)
                assert (None if entry is None else (entry.value, entry.version)) == model.get(key)
        elif look == "scan":
            assert list(content(keys).items()) == sorted(model.items())
        assert keys.weight_bytes == part.load(keys_of(keys).dump()).weight_bytes
    for keys, model in past:
        assert list(content(keys).items()) == sorted(model.items())


def keys_of(keys: Keys) -> Keys:
    """The same, so that dumping does not sort the original."""
    return Keys(keys._sorted, dict(keys._recent), keys.weight_bytes)


def test_what_changed_lately_is_bounded() -> None:
    """By what a commit changes, or by a limit, whichever is more."""
    keys = KeysPart().empty()
    for version in range(5_000):
        keys = changed(keys, {f"key{version}": version}, version)
        assert len(keys._recent) <= 512
    for round_, size in enumerate([2_000] * 5 + [4_000] * 5 + [9_000]):
        many: dict[str, int | None] = {f"many{size}-{number}": number for number in range(size)}
        keys = changed(keys, many, 5_000 + round_)
        assert len(keys._recent) <= 8_192
    assert not keys._recent
    keys = changed(changed(keys, {"one": 1}, 6_000), {"two": 2}, 6_001)
    assert len(keys._recent) == 2
    assert len(content(keys)) == 20_002


def test_put_of_one_and_of_many_are_the_same() -> None:
    one, many = KeysPart().draft(KeysPart().empty()), KeysPart().draft(KeysPart().empty())
    one.apply(Put.of("a", [1]), 3)
    one.apply(Put.of("b", "x"), 3)
    many.apply(Puts.of({"a": b"[1]", "b": b'"x"'}), Version(3))
    assert content(one.freeze()) == content(many.freeze()) == {"a": (b"[1]", 3), "b": (b'"x"', 3)}
