"""What the leader of a group's slot has to say to a request, without a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakebed.broker.answers import Answer, Deferred
from lakebed.broker.context import Call, Context
from lakebed.broker.coordination import Reply
from lakebed.errors import LakebedError
from lakebed.groups import Caller, Coordinator, Step
from lakebed.protocol import Message


def answer_of_leader(
    group_id: str,
    call: Call,
    context: Context,
    ask: Callable[[Coordinator, Caller], Step],
    refused: Callable[[LakebedError], Message],
    told: Callable[[Any], Message] | None = None,
    *,
    beats: bool = False,
) -> Answer:
    """The coordinator's answer, or what `told` makes of it: now if it is there already, as for most heartbeats, or once it is.

    `beats`: it is asked for by a heartbeat, which may be worth a moment's wait.
    """

    def build(reply: Reply) -> Message:
        try:
            answer = reply.result()
        except LakebedError as error:
            return refused(error)
        if told is not None:
            return told(answer)
        assert isinstance(answer, Message)
        return answer

    def make(coordinator: Coordinator, ticket: int) -> Step:
        return ask(coordinator, call.caller(ticket))

    try:
        leader = context.groups.leader(group_id)
        reply = leader.submit_beat(make, group_id) if beats else leader.submit(make)
    except LakebedError as error:
        return refused(error)
    return build(reply) if reply.done() else Deferred(reply, build)
