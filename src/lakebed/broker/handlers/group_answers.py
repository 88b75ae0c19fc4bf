"""From what a slot's leader owes to the answer of a request, without a task."""

from __future__ import annotations

from collections.abc import Callable

from lakebed.broker.connection import Answer, Deferred
from lakebed.broker.coordination import Reply
from lakebed.protocol import Message


def answer_from(reply: Reply, build: Callable[[Reply], Message]) -> Answer:
    """What `build` makes of the reply: now if it is there already, as for most heartbeats, or once it is."""
    return build(reply) if reply.done() else Deferred(reply, build)
