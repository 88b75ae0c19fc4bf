"""The ordered map against a dict."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.kernel import ABSENT, SortedMap

keys = st.integers(0, 3000)
changes = st.dictionaries(keys, st.one_of(st.just(ABSENT), st.integers()), max_size=60)
bulk = st.integers(0, 2500).map(lambda size: dict.fromkeys(range(0, 3 * size, 3), 1))


@settings(max_examples=60, deadline=None)
@given(start=bulk, steps=st.lists(changes, max_size=12), low=keys, high=keys)
def test_any_changes_give_what_a_dict_gives(start: dict, steps: list[dict], low: int, high: int) -> None:
    model, tested = dict(start), SortedMap.build(sorted(start), [start[key] for key in sorted(start)])
    versions = [(tested, dict(model))]
    for step in steps:
        model.update(step)
        model = {key: value for key, value in model.items() if value is not ABSENT}
        tested = tested.merged(step)
        versions.append((tested, dict(model)))
    for old, then in versions:  # old versions are what they were
        assert list(old.items()) == sorted(then.items())
        assert len(old) == len(then)
    assert list(tested.items(low, high)) == sorted((k, v) for k, v in model.items() if low <= k < high)
    assert list(tested.items(low)) == sorted((k, v) for k, v in model.items() if low <= k)
    assert all(tested.get(key) == model.get(key) for key in [*model, low, high])


def test_removing_everything_leaves_an_empty_map_that_can_be_filled_again() -> None:
    tested = SortedMap.build(list(range(2000)), list(range(2000)))
    for first in range(0, 2000, 100):
        tested = tested.merged(dict.fromkeys(range(first, first + 100), ABSENT))
    assert (len(tested), list(tested.items()), tested.get(5)) == (0, [], None)
    assert list(tested.merged({7: 7}).items()) == [(7, 7)]


def test_many_small_removals_do_not_leave_a_long_list_of_thin_leaves() -> None:
    tested = SortedMap.build(list(range(20_000)), list(range(20_000)))
    for key in range(20_000):
        if key % 250:
            tested = tested.merged({key: ABSENT})
    assert len(tested) == 80
    assert len(tested._leaves) <= 12


def test_keys_that_come_one_by_one_behind_all_others_are_all_there_and_old_versions_stay() -> None:
    versions = [SortedMap[int, int].empty()]
    for key in range(1500):
        versions.append(versions[-1].merged({key: -key}))
    assert [len(version) for version in versions] == list(range(1501))
    assert list(versions[-1].items()) == [(key, -key) for key in range(1500)]
    assert list(versions[700].items()) == [(key, -key) for key in range(700)]
