"""A request that has been started and whose answer has not been sent."""

from __future__ import annotations

import msgspec

from lakebed.broker.answers import Promise
from lakebed.broker.inbox import Frame
from lakebed.protocol import Message, RequestHeader


class Request(msgspec.Struct, eq=False):
    """It is ready when its answer is known; None then means that the client wants none."""

    frame: Frame
    header: RequestHeader
    began_s: float
    ready: bool = False
    answer: Message | None = None
    awaits: Promise | None = None
