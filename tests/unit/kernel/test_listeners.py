"""Those who are called when their transaction has ended: at once, in order, each for itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lakebed.errors import Closed, Invalid
from lakebed.kernel import Committed, Decision, Outcome, View
from tests.logs import increment, object_store, open_log, put


def refuse(_: View) -> Decision[None]:
    raise Invalid("not this one", "Send another")


async def test_listener_hears_before_the_loop_turns_again() -> None:
    log = await open_log(object_store())
    told: list[str] = []
    waiting = asyncio.ensure_future(log.commit(increment("n"), txn_id="a"))
    waiting.add_done_callback(lambda _: told.append("whoever waited"))
    await asyncio.sleep(0)  # it is queued, and nothing has been committed yet
    log.submit(increment("n"), lambda outcome: told.append(f"called with {answer(outcome)}"), txn_id="b")
    await waiting
    await asyncio.sleep(0)
    assert told == ["called with 2", "whoever waited"]
    await log.close()


async def test_listeners_hear_in_the_order_in_which_they_submitted_and_see_the_new_state() -> None:
    log = await open_log(object_store())
    heard: list[tuple[int, int]] = []

    def ended(outcome: Outcome) -> None:
        entry = log.current.get("n")
        assert entry is not None
        heard.append((answer(outcome), entry.decode(int)))

    for number in range(5):
        log.submit(increment("n"), ended, txn_id=str(number))
    await log.commit(put("k", 1), txn_id="last")
    assert heard == [(number + 1, 5) for number in range(5)]  # all five in one commit
    await log.close()


async def test_one_that_fails_keeps_nobody_else_from_hearing() -> None:
    log = await open_log(object_store())
    heard: list[Outcome] = []
    troubles: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, trouble: troubles.append(trouble))

    def fail(_: Outcome) -> None:
        raise RuntimeError("mine")

    log.submit(increment("n"), fail, txn_id="a")
    log.submit(refuse, heard.append, txn_id="b")
    log.submit(increment("n"), heard.append, txn_id="c")
    assert (await log.commit(increment("n"), txn_id="d")) == Committed(log.current.version, log.current.timestamp, 3)
    assert [type(outcome) for outcome in heard] in ([Invalid, Committed], [Committed, Invalid])
    assert [str(trouble["exception"]) for trouble in troubles] == ["mine"]
    await log.close()


async def test_listener_may_submit_the_next_from_within() -> None:
    log = await open_log(object_store())
    heard: list[int] = []
    done = asyncio.Event()

    def ended(outcome: Outcome) -> None:
        heard.append(answer(outcome))
        if len(heard) == 3:
            done.set()
        else:
            log.submit(increment("n"), ended, txn_id=str(len(heard)))

    log.submit(increment("n"), ended, txn_id="0")
    await asyncio.wait_for(done.wait(), 10)
    assert heard == [1, 2, 3]
    await log.close()


async def test_closed_log_takes_nothing() -> None:
    log = await open_log(object_store())
    heard: list[Outcome] = []
    log.submit(increment("n"), heard.append, txn_id="a")
    await log.close()
    assert [answer(outcome) for outcome in heard] == [1]
    with pytest.raises(Closed):
        log.submit(increment("n"), heard.append, txn_id="b")
    assert len(heard) == 1


def answer(outcome: Outcome) -> int:
    assert isinstance(outcome, Committed)
    assert isinstance(outcome.answer, int)
    return outcome.answer
