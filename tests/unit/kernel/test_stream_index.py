"""A stream's index against a plain list of ranges: appends, swaps, cuts and refusals, live, replayed and from a checkpoint."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import Invalid
from lakebed.kernel import Add, Commit, Forget, ForgetStreams, Operation, Remove, Snapshot, Version
from lakebed.kernel.blocks import BLOCK_MAX
from lakebed.kernel.checkpoint import decode_checkpoint, encode_checkpoint
from lakebed.kernel.state import Draft
from tests.logs import REGISTRY, state_bytes

Row = tuple[int, int, str]


def add(start: int, end: int, segment: str = "s", **fields: object) -> Add:
    return Add(stream=1, offset_start=start, offset_end=end, segment=segment, size=end - start, **fields)  # type: ignore[arg-type]


def remove(start: int, end: int, released_ms: int = 0) -> Remove:
    return Remove(stream=1, offset_start=start, offset_end=end, released_ms=released_ms)


def rows(snapshot: Snapshot) -> list[Row]:
    stream = snapshot.stream(1)
    return [(e.offset_start, e.offset_end, e.segment) for e in stream.entries()] if stream else []


def applied(snapshot: Snapshot, *transactions: list[Operation]) -> Snapshot:
    """Each transaction a commit of its own."""
    for operations in transactions:
        draft = Draft(snapshot, REGISTRY)
        draft.apply(operations, snapshot.version + 1)
        snapshot = draft.freeze(Version(snapshot.version + 1), f"t{snapshot.version + 1:06d}")
    return snapshot


@st.composite
def histories(draw: st.DrawFn) -> list[list[Operation]]:
    """Transactions that fit: appends, rewrites of a run of entries, cuts of the head, streams forgotten and begun anew."""
    model: list[Row] = []
    end, found = 0, []
    for number in range(draw(st.integers(1, 14))):
        kinds = ["append", "append", "burst", "swap", "cut", "both", "forget", "leave"]
        kind = draw(st.sampled_from(kinds if model else ["append", "append", "leave"]))
        operations: list[Operation] = []
        since_ms = draw(st.sampled_from([0, number + 1, number + 1]))
        if kind == "forget":
            operations.append(Forget(segments=[f"w{draw(st.integers(0, number))}"]))
        if kind in ("swap", "both"):
            first = draw(st.integers(0, len(model) - 1))
            last = draw(st.integers(first, min(len(model) - 1, first + draw(st.sampled_from([0, 3, 700])))))
            start, stop = model[first][0], model[last][1]
            parts = [start, *sorted(draw(st.sets(st.integers(start, stop), max_size=3)) - {start, stop}), stop]
            fresh = [(low, high, f"p{number}") for low, high in pairwise(parts)]
            operations += [remove(start, stop, since_ms), *(add(*row, batches="YQ==") for row in fresh)]
            model[first : last + 1] = fresh
        if kind == "leave":
            operations.append(ForgetStreams(streams=[1, 2]))
            operations += [remove(model[0][0], model[-1][1], since_ms)] if model else []
            model, end = [], 0
        if kind == "cut":
            count = draw(st.integers(1, len(model)))
            operations.append(remove(model[0][0], model[count - 1][1], since_ms))
            del model[:count]
        if kind in ("append", "burst", "both"):
            for _ in range(draw(st.sampled_from([1, 2, 600])) if kind == "burst" else 1):
                size = draw(st.integers(1, 5)) if kind != "burst" else 2
                operations.append(add(end, end + size, f"w{number}", timestamp_min=end, timestamp_max=end + size))
                model.append((end, end + size, f"w{number}"))
                end += size
        found.append(operations)
    return found


@settings(max_examples=80, deadline=None)
@given(histories())
def test_any_history_gives_what_a_list_gives(history: list[list[Operation]]) -> None:
    model: list[Row] = []
    released: dict[str, int] = {}
    end, changed = 0, -1
    snapshot = Snapshot.empty(REGISTRY)
    for operations in history:
        before = {segment for _, _, segment in model}
        removed = [(op.offset_start, op.offset_end) for op in operations if isinstance(op, Remove)]
        model = [row for row in model if not any(low <= row[0] and row[1] <= high for low, high in removed)]
        model = sorted(
            model + [(op.offset_start, op.offset_end, op.segment) for op in operations if isinstance(op, Add)]
        )
        end = max([end, *(op.offset_end for op in operations if isinstance(op, Add))])
        for segment in before - {segment for _, _, segment in model}:
            released[segment] = max(op.released_ms for op in operations if isinstance(op, Remove))
        for segment in (name for op in operations if isinstance(op, Forget) for name in op.segments):
            released.pop(segment, None)
        snapshot = applied(snapshot, operations)
        assert rows(snapshot) == model
        stream = snapshot.stream(1)
        assert list(snapshot.streams()) == ([(1, stream)] if stream else [])
        assert list(snapshot.released()) == sorted((name, since) for name, since in released.items() if since)
        if isinstance(operations[0], ForgetStreams):
            assert stream is None
            end = 0
            continue
        assert stream is not None
        changed = changed if isinstance(operations[0], Forget) else snapshot.version
        assert (stream.end, stream.count, stream.changed) == (end, len(model), changed)
        assert stream.start == (model[0][0] if model else end)
    if stream is None:
        return
    for low, high, segment in model[:: max(1, len(model) // 20)]:
        for offset in {low, high - 1}:
            entry = stream.find(offset)
            assert entry is not None
            assert (entry.offset_start, entry.segment) == (low, segment)
        assert snapshot.references(segment) == sum(row[2] == segment for row in model)
    assert stream.find(end) is None
    assert stream.find(stream.start - 1) is None


@settings(max_examples=40, deadline=None)
@given(histories(), st.integers(0, 14))
def test_replay_in_one_run_or_from_a_checkpoint_gives_the_same_bytes(history: list[list[Operation]], cut: int) -> None:
    live = applied(Snapshot.empty(REGISTRY), *history)
    commits = [Commit(at, f"t{at:06d}", f"x{at}", operations, False) for at, operations in enumerate(history)]
    early = applied(Snapshot.empty(REGISTRY), *history[:cut])
    if early.weight_bytes:  # a log has at least its identity
        name = f"{early.version:020d}.checkpoint.json"
        early, _ = decode_checkpoint(encode_checkpoint(early, "l"), name, REGISTRY)
    for base, rest in ((Snapshot.empty(REGISTRY), commits), (early, commits[cut:])):
        draft = Draft(base, REGISTRY)
        draft.replay(rest)
        again = draft.freeze(live.version, live.timestamp)
        assert state_bytes(again) == state_bytes(live)
        assert rows(again) == rows(live)


BASE: list[Operation] = [add(0, 10, "a"), add(10, 20, "b"), add(20, 30, "c")]
MISFITS: dict[str, list[Operation]] = {
    "gap at the end": [add(31, 40)],
    "overlap at the end": [add(29, 40)],
    "nothing in it": [add(30, 30)],
    "backwards": [add(30, 25)],
    "entry cut in two": [remove(5, 20), add(5, 20)],
    "removed in the middle": [remove(10, 20)],
    "removed at the end": [remove(20, 30)],
    "swapped with a gap": [remove(10, 20), add(10, 15)],
    "swapped with an overlap": [remove(10, 20), add(10, 21)],
    "removed twice": [remove(10, 20), remove(10, 20), add(10, 20)],
    "removed what is not there": [remove(30, 40)],
    "added where something is": [add(10, 20)],
    "added before the start": [remove(0, 10), add(-5, 10)],
    "unknown file type": [add(30, 40, file_type="orc")],
    "size beyond 32 bits": [Add(stream=1, offset_start=30, offset_end=31, segment="s", size=1 << 32)],
    "negative position": [add(30, 40, position=-1)],
    "timestamp beyond 64 bits": [add(30, 40, timestamp_max=1 << 63)],
    "offset beyond 64 bits": [add(30, 1 << 63, position=0)],
    "forgotten with entries": [ForgetStreams(streams=[1])],
    "forgotten with an entry left": [remove(0, 20), ForgetStreams(streams=[1])],
    "forgotten and added to": [ForgetStreams(streams=[1]), remove(0, 30), add(30, 40)],
    "batches with a comma": [add(30, 40, batches="a,b")],
    "batches beyond ASCII": [add(30, 40, batches="é")],
}


@pytest.mark.parametrize("case", MISFITS)
def test_misfit_is_refused_and_leaves_nothing_behind(case: str) -> None:
    before = applied(Snapshot.empty(REGISTRY), BASE)
    with pytest.raises(Invalid):
        applied(before, MISFITS[case])
    after = applied(before, [add(30, 40, "d", batches="ZA==", timestamp_max=7)])
    assert rows(after) == [(0, 10, "a"), (10, 20, "b"), (20, 30, "c"), (30, 40, "d")]
    newest = after.stream(1).newest()  # type: ignore[union-attr]
    assert newest is not None
    assert (newest.batches, newest.timestamp_max, newest.size) == ("ZA==", 7, 10)
    assert state_bytes(before) == state_bytes(applied(Snapshot.empty(REGISTRY), BASE))


def test_weight_returns_to_what_it_was_when_entries_go() -> None:
    empty = applied(Snapshot.empty(REGISTRY), [add(0, 10, "a")])
    grown = applied(empty, *([add(10 * n, 10 * n + 10, f"s{n}", batches="x" * 100)] for n in range(1, 50)))
    settled = applied(grown, [remove(0, 500), add(0, 500, "a")])
    assert grown.weight_bytes > 49 * 100
    assert settled.weight_bytes == empty.weight_bytes


def test_forgotten_stream_leaves_no_trace_and_old_versions_keep_it() -> None:
    bare = applied(Snapshot.empty(REGISTRY), [Add(stream=2, offset_start=0, offset_end=1, segment="s", size=1)])
    used = applied(bare, [add(0, 10, "a")], [add(10, 20, "a")])
    gone = applied(used, [remove(0, 20, 7), ForgetStreams(streams=[1, 99])])
    assert [number for number, _ in gone.streams()] == [2]
    assert (gone.stream(1), gone.released_ms("a")) == (None, 7)
    assert applied(gone, [Forget(segments=["a"])]).weight_bytes == bare.weight_bytes
    assert rows(used) == [(0, 10, "a"), (10, 20, "a")]
    draft = Draft(used, REGISTRY)
    draft.apply([remove(0, 20, 7), ForgetStreams(streams=[1])], 9)
    assert draft.stream(1) is None
    draft.apply([add(0, 3, "b")], 10)
    assert rows(draft.freeze(Version(10), "t")) == [(0, 3, "b")]


def test_old_versions_stay_as_they_were_while_new_ones_share_their_blocks() -> None:
    versions = [Snapshot.empty(REGISTRY)]
    for number in range(1200):
        versions.append(applied(versions[-1], [add(number, number + 1, f"s{number % 5}")]))
    for number in (0, 1, 511, 512, 513, 1024, 1200):
        assert len(rows(versions[number])) == number
    fork = applied(versions[700], [add(700, 900, "fork")])
    assert rows(fork)[-1] == (700, 900, "fork")
    assert rows(versions[701])[-1] == (700, 701, "s0")


def test_settled_files_are_never_remembered_as_released() -> None:
    snapshot = applied(Snapshot.empty(REGISTRY), [add(0, 5, "w"), add(5, 9, "p", file_type="parquet"), add(9, 12, "w")])
    snapshot = applied(snapshot, [remove(0, 9, 7)])
    assert (snapshot.released_ms("w"), snapshot.released_ms("p")) == (0, 0)
    assert list(applied(snapshot, [remove(9, 12, 8)]).released()) == [("w", 8)]


def test_segment_that_is_named_again_is_released_no_longer() -> None:
    snapshot = applied(Snapshot.empty(REGISTRY), [add(0, 5, "w")], [remove(0, 5, 7)])
    assert snapshot.released_ms("w") == 7
    again = applied(snapshot, [add(5, 9, "w")])
    assert list(again.released()) == []
    draft = Draft(snapshot, REGISTRY)
    draft.apply([add(5, 9, "w")], 9)
    assert draft.released_ms("w") == 0


def test_edit_leaves_the_blocks_behind_it_alone_and_joins_crumbs() -> None:
    many: list[Operation] = [add(at, at + 1, f"s{at}") for at in range(6 * BLOCK_MAX)]
    before = applied(Snapshot.empty(REGISTRY), many)
    after = applied(before, [remove(10, 3 * BLOCK_MAX + 20, 1), add(10, 3 * BLOCK_MAX + 20, "one")])
    old, new = before.stream(1), after.stream(1)
    assert old is not None
    assert new is not None
    kept = [block for block, _ in new.blocks()]
    assert all(block in kept for block, _ in list(old.blocks())[4:])
    assert len(kept) == 3
    for at in range(BLOCK_MAX, 0, -1):
        start = 3 * BLOCK_MAX + 19 + at
        after = applied(after, [remove(start, start + 1), add(start, start + 1, f"again{at}")])
    sizes = [count for _, count in after.stream(1).blocks()]  # type: ignore[union-attr]
    assert len(sizes) <= 4
