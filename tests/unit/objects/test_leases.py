"""Leases: who may act, by whose clock, and what an unclear answer means."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from lakebed.clock import FakeClock
from lakebed.errors import Ambiguous, Corrupt, Fenced, Invalid, Unavailable
from lakebed.objects import (
    Body,
    Drawn,
    ETag,
    Fault,
    FaultRates,
    FaultSchedule,
    FaultyStore,
    Key,
    Lease,
    Leases,
    MemoryStore,
)

TTL_S = 10.0


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ours(store: MemoryStore, clock: FakeClock) -> Leases:
    return Leases(store, clock, TTL_S)


@pytest.fixture
def theirs(store: MemoryStore, clock: FakeClock) -> Leases:
    return Leases(store, clock, TTL_S)


async def test_free_resource_is_acquired_with_token_one(ours: Leases, store: MemoryStore) -> None:
    lease = await _acquired(ours, "slots/1", "a")
    assert (lease.holder, lease.token, lease.alive()) == ("a", 1, True)
    body, _ = await store.get("leases/slots/1.json")
    written = msgspec.json.decode(body)
    assert [*written] == ["format", "holder", "token", "ttl_ms", "renewals", "nonce", "data"]
    assert (written["holder"], written["token"], written["ttl_ms"], written["renewals"]) == ("a", 1, 10_000, 0)


async def test_lease_of_a_holder_known_to_be_dead_is_taken_at_once_and_no_other(ours: Leases, theirs: Leases) -> None:
    dead = await _acquired(theirs, "brokers/7", "dead")
    assert await ours.acquire("brokers/7", "next", dead_token=dead.token + 1) is None
    taken = await ours.acquire("brokers/7", "next", dead_token=dead.token)
    assert taken is not None
    assert taken.token > dead.token
    assert await theirs.acquire("brokers/7", "third", dead_token=dead.token) is None
    with pytest.raises(Fenced):
        await theirs.renew(dead)
    await ours.renew(taken)


async def test_held_resource_is_not_given_to_another_while_renewed(
    ours: Leases, theirs: Leases, clock: FakeClock
) -> None:
    lease = await _acquired(ours, "r", "a")
    for _ in range(20):
        await clock.jump(TTL_S / 3)
        await ours.renew(lease)
        assert await theirs.acquire("r", "b") is None
    assert lease.alive()


async def test_challenger_takes_over_after_the_whole_time_on_its_own_clock(store: MemoryStore, ours: Leases) -> None:
    lease = await _acquired(ours, "r", "a")
    its_clock = FakeClock(now_ms=5)
    theirs = Leases(store, its_clock, TTL_S)
    assert await theirs.acquire("r", "b") is None
    await its_clock.jump(TTL_S - 0.1)
    assert await theirs.acquire("r", "b") is None
    await its_clock.jump(0.2)
    taken = await _acquired(theirs, "r", "b")
    assert (taken.holder, taken.token) == ("b", 2)
    with pytest.raises(Fenced):
        await ours.renew(lease)
    assert not lease.alive()


async def test_challenger_that_never_looked_before_waits_however_old_the_lease_is(
    ours: Leases, theirs: Leases, clock: FakeClock
) -> None:
    await _acquired(ours, "r", "a")
    await clock.jump(1000 * TTL_S)
    assert await theirs.acquire("r", "b") is None


async def test_challenger_respects_a_holder_with_a_longer_time(store: MemoryStore, clock: FakeClock) -> None:
    patient, hasty = Leases(store, clock, 60.0), Leases(store, clock, 1.0)
    await _acquired(patient, "r", "a")
    assert await hasty.acquire("r", "b") is None
    await clock.jump(59)
    assert await hasty.acquire("r", "b") is None
    await clock.jump(1.5)
    assert await hasty.acquire("r", "b") is not None


async def test_holder_stops_before_a_challenger_can_start(ours: Leases, theirs: Leases, clock: FakeClock) -> None:
    lease = await _acquired(ours, "r", "a")
    assert await theirs.acquire("r", "b") is None
    for _ in range(200):
        taken = await theirs.acquire("r", "b")
        if taken is not None:
            return
        was_alive = lease.alive()
        await clock.jump(0.1)
        assert was_alive or not lease.alive()
    raise AssertionError("never taken over")


async def test_holder_counts_from_the_start_of_its_renewal(clock: FakeClock) -> None:
    slow = FaultyStore(MemoryStore(), FaultSchedule.replay([]), clock)
    leases = Leases(slow, clock, TTL_S)
    lease = await _acquired(leases, "r", "a")
    slow.schedule = FaultSchedule.replay([Drawn(Fault.DELAYED, 0.5)])
    slow.schedule.delay_s_max = 8.0
    renewal = asyncio.create_task(leases.renew(lease))
    await asyncio.sleep(0)
    await clock.jump(4.0)
    await renewal
    assert lease.left_s() == pytest.approx(TTL_S * 0.9 - 4.0)


async def test_suspended_holder_finds_its_lease_dead(ours: Leases, clock: FakeClock) -> None:
    lease = await _acquired(ours, "r", "a")
    clock.suspend(TTL_S)
    assert not lease.alive()


async def test_paused_holder_may_renew_when_nobody_came(ours: Leases, clock: FakeClock) -> None:
    lease = await _acquired(ours, "r", "a")
    await clock.jump(5 * TTL_S)
    assert not lease.alive()
    await ours.renew(lease)
    assert (lease.alive(), lease.token) == (True, 1)


async def test_released_lease_is_free_at_once_and_its_token_grows_on(ours: Leases, theirs: Leases) -> None:
    for token in range(1, 6):
        leases, holder = ((ours, "a"), (theirs, "b"))[token % 2]
        lease = await _acquired(leases, "r", holder)
        assert lease.token == token
        await leases.release(lease)
        assert not lease.alive()
        with pytest.raises(Fenced):
            await leases.renew(lease)


async def test_release_after_take_over_leaves_the_new_holder_alone(
    ours: Leases, theirs: Leases, clock: FakeClock
) -> None:
    lease = await _acquired(ours, "r", "a")
    await theirs.acquire("r", "b")
    await clock.jump(TTL_S)
    taken = await _acquired(theirs, "r", "b")
    await ours.release(lease)
    await theirs.renew(taken)
    assert taken.alive()


async def test_of_many_challengers_one_takes_over(store: MemoryStore, ours: Leases, clock: FakeClock) -> None:
    await _acquired(ours, "r", "dead")
    crowd = [Leases(store, clock, TTL_S) for _ in range(10)]
    assert [await leases.acquire("r", "same name") for leases in crowd] == [None] * 10
    await clock.jump(TTL_S)
    taken = await asyncio.gather(*(leases.acquire("r", "same name") for leases in crowd))
    assert [lease.token for lease in taken if lease is not None] == [2]


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.REPEATED, Fault.LANDS_LATER])
async def test_unclear_answer_to_a_renewal_is_settled_by_reading(fault: Fault, clock: FakeClock) -> None:
    faulty = FaultyStore(MemoryStore(), FaultSchedule.replay([]))
    leases = Leases(faulty, clock, TTL_S)
    lease = await _acquired(leases, "r", "a")
    for extent in (0.0, 0.2, 0.4, 0.9):
        faulty.schedule = FaultSchedule.replay([Drawn(fault, extent)])
        await clock.jump(TTL_S / 2)
        await leases.renew(lease)
        assert (lease.alive(), lease.token) == (True, 1)
        await faulty.settle()


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.REPEATED, Fault.LANDS_LATER])
async def test_unclear_answer_to_an_acquisition_is_settled_by_reading(fault: Fault, clock: FakeClock) -> None:
    faulty = FaultyStore(MemoryStore(), FaultSchedule.replay([Drawn(Fault.NONE), Drawn(fault, 0.0)]))
    leases = Leases(faulty, clock, TTL_S)
    lease = await _acquired(leases, "r", "a")
    await leases.renew(lease)
    assert lease.token == 1


class LandsWhileTheHolderSleeps(MemoryStore):
    """The first replace is answered unclearly. The look that follows sees nothing of it; then it lands, and time passes."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.fake_clock = clock
        self.late: tuple[Key, Body, ETag] | None = None
        self.armed = False

    async def replace(self, key: Key, body: Body, etag: ETag) -> ETag:
        if self.armed:
            self.armed, self.late = False, (key, body, etag)
            raise Ambiguous("no answer")
        return await super().replace(key, body, etag)

    async def get(self, key: Key) -> tuple[bytes, ETag]:
        seen = await super().get(key)
        if self.late is not None:
            await super().replace(*self.late)
            self.late = None
            await self.fake_clock.jump(8.0)
        return seen


async def test_renewal_that_landed_before_a_sleep_does_not_count_from_after_it(clock: FakeClock) -> None:
    store = LandsWhileTheHolderSleeps(clock)
    leases = Leases(store, clock, TTL_S)
    lease = await _acquired(leases, "r", "a")
    store.armed = True
    await leases.renew(lease)
    body, _ = await store.get("leases/r.json")
    assert msgspec.json.decode(body)["renewals"] == 3, "only a write that began after the sleep may count from after it"
    assert lease.left_s() == pytest.approx(TTL_S * 0.9)


@pytest.mark.parametrize("seed", range(20))
async def test_two_holders_are_never_alive_at_once_on_a_faulty_store(seed: int) -> None:
    clock, inner, tokens = FakeClock(seed=seed), MemoryStore(), list[int]()
    rates = FaultRates(refused=0.1, answer_lost=0.1, lands_later=0.15, repeated=0.1, delayed=0.0)
    crowd = [Leases(FaultyStore(inner, FaultSchedule(seed * 10 + n, rates)), clock, TTL_S) for n in range(3)]
    held: list[Lease | None] = [None] * 3
    for turn in range(300):
        number = int(clock.random() * 3)
        held[number] = await _act(crowd[number], held[number], f"h{number}", clock.random())
        if held[number] is not None and held[number].token not in tokens:  # type: ignore[union-attr]
            tokens.append(held[number].token)  # type: ignore[union-attr]
        assert sum(lease is not None and lease.alive() for lease in held) <= 1, turn
        await clock.jump(clock.random() * 3)
    assert tokens == sorted(tokens)
    assert len(tokens) > 3


async def test_holders_shows_the_living_with_their_data(ours: Leases, theirs: Leases, clock: FakeClock) -> None:
    one = await _acquired(ours, "brokers/1", "b1", {"zone": "a"})
    await _acquired(ours, "brokers/2", "b2")
    gone = await _acquired(ours, "brokers/3", "b3")
    await _acquired(ours, "slots/1", "b1")
    await ours.release(gone)
    assert [h.resource for h in await theirs.holders("brokers/")] == ["brokers/1", "brokers/2"]
    await clock.jump(TTL_S)
    await ours.renew(one, {"zone": "b"})
    (living,) = await theirs.holders("brokers/")
    assert (living.resource, living.holder, living.token, living.data) == ("brokers/1", "b1", 1, {"zone": "b"})


async def test_kept_lease_lives_on_and_ends_with_its_release(ours: Leases, clock: FakeClock) -> None:
    lease = await _acquired(ours, "r", "a")
    keeper = asyncio.create_task(ours.keep(lease))
    for _ in range(20):
        await asyncio.sleep(0)
        await clock.jump(TTL_S / 2)
        assert lease.alive()
    await ours.release(lease)
    await clock.jump(TTL_S)
    await asyncio.wait_for(keeper, 5)


@pytest.mark.parametrize(
    ("body", "error"), [(b"", Corrupt), (b"{}", Corrupt), (b"not json", Corrupt), (b'{"format": 2}', Corrupt)]
)
async def test_lease_that_cannot_be_read_is_reported_not_taken(
    store: MemoryStore, ours: Leases, body: bytes, error: type[Exception]
) -> None:
    await store.put("leases/r.json", body)
    with pytest.raises(error):
        await ours.acquire("r", "a")


async def test_lease_of_a_newer_format_is_refused(store: MemoryStore, ours: Leases) -> None:
    await _acquired(ours, "r", "a")
    body, _ = await store.get("leases/r.json")
    await store.put("leases/r.json", body.replace(b'"format":1', b'"format":2'))
    with pytest.raises(Invalid):
        await ours.acquire("r", "b")


async def _act(leases: Leases, lease: Lease | None, holder: str, dice: float) -> Lease | None:
    try:
        if lease is None:
            return await leases.acquire("r", holder)
        if dice < 0.1:
            await leases.release(lease)
            return None
        if dice < 0.5:
            await leases.renew(lease)
        return lease
    except Fenced:
        return None
    except Unavailable:
        return lease


async def _acquired(leases: Leases, resource: str, holder: str, data: dict[str, object] | None = None) -> Lease:
    lease = await leases.acquire(resource, holder, data)
    assert lease is not None
    return lease
