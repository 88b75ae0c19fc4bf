"""The answer that a slot's leader owes: settled once, heard at once."""

from __future__ import annotations

import asyncio
import weakref

import pytest

from lakebed.broker.coordination import Reply
from lakebed.errors import Unavailable


def test_listener_is_called_in_the_turn_that_brings_the_answer() -> None:
    reply, heard = Reply(), []
    reply.add_done_callback(lambda done: heard.append(done.result()))
    assert (reply.done(), heard) == (False, [])
    reply.set_result("yes")
    assert (reply.done(), heard) == (True, ["yes"])


def test_listener_that_comes_late_is_called_at_once() -> None:
    reply, heard = Reply(), []
    reply.set_result("yes")
    reply.add_done_callback(heard.append)
    assert heard == [reply]


def test_settled_reply_does_not_hold_its_listener() -> None:
    class Listener:
        def __init__(self, reply: Reply) -> None:
            self.reply = reply
            reply.add_done_callback(self.heard)

        def heard(self, _: Reply) -> None:
            return None

    listener = Listener(Reply())
    gone = weakref.ref(listener)
    listener.reply.set_result("yes")
    del listener
    assert gone() is None, "a cycle was left"


def test_second_outcome_is_passed_over() -> None:
    reply = Reply()
    reply.cancel()
    reply.set_result("too late")
    reply.set_exception(Unavailable("too late", "Retry"))
    assert reply.cancelled()
    with pytest.raises(asyncio.CancelledError):
        reply.result()


def test_refusal_is_raised() -> None:
    reply = Reply()
    reply.set_exception(Unavailable("not now", "Retry"))
    assert not reply.cancelled()
    with pytest.raises(Unavailable, match="not now"):
        reply.result()


async def test_coroutine_waits_for_the_answer() -> None:
    reply = Reply()
    waiting = asyncio.create_task(reply.wait())
    await asyncio.sleep(0)
    reply.set_result("yes")
    assert await waiting == "yes"


async def test_coroutine_that_is_cancelled_stops_waiting() -> None:
    reply = Reply()
    waiting = asyncio.create_task(reply.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert reply.cancelled()
