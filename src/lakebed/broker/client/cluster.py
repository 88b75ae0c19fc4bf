"""Brokers as a client sees them: where to ask, and who leads what."""

from __future__ import annotations

from lakebed.broker.client.connection import BrokerConnection
from lakebed.clock import Clock
from lakebed.config import Address
from lakebed.errors import Closed, LakebedError, NotFound, Unavailable
from lakebed.protocol import Api, ErrorCode, Message, metadata

_TRIES = 5
_PAUSE_S = 0.2
_CODES = {int(code): code for code in ErrorCode}


class Refused(LakebedError):
    """A broker answered with an error code."""

    def __init__(self, what: str, code: int, detail: str | None = None) -> None:
        self.code = code
        known = error_code(code)
        name = str(code) if known is None else known.name
        super().__init__(f"{what}: {detail or name.lower().replace('_', ' ')} ({name})")


def error_code(number: int) -> ErrorCode | None:
    """The code with that number, if this program knows it."""
    return _CODES.get(number)


def is_retriable(number: int) -> bool:
    """Whether the same request may be sent again."""
    known = error_code(number)
    return known is not None and known.retriable


class Cluster:
    """Connections to the brokers behind a bootstrap address, opened when first needed."""

    def __init__(self, bootstrap: Address, clock: Clock, client_id: str = "lakebed", wait_s: float = 30.0) -> None:
        self._bootstrap = bootstrap
        self._clock = clock
        self._client_id = client_id
        self._wait_s = wait_s
        self._open: dict[Address, BrokerConnection] = {}
        self._brokers: dict[int, Address] = {}
        self._topics: dict[str, metadata.MetadataResponseTopic] = {}

    async def connection(self, node: int | None = None) -> BrokerConnection:
        """To broker `node`, or to any."""
        address = self._bootstrap if node is None else self._brokers.get(node, self._bootstrap)
        found = self._open.get(address)
        if found is None:
            found = self._open[address] = await BrokerConnection.open(address, self._client_id, self._wait_s)
        return found

    async def ask(self, api: Api, request: Message, node: int | None = None, wait_s: float | None = None) -> Message:
        """Ask once; a connection that breaks is forgotten."""
        connection = await self.connection(node)
        try:
            return await connection.ask(api, request, wait_s)
        except Closed:
            self._open = {address: other for address, other in self._open.items() if other is not connection}
            raise

    async def topic(self, name: str, create: bool = False) -> metadata.MetadataResponseTopic:
        """The topic as brokers describe it; asked again while it has no leaders yet."""
        found = self._topics.get(name)
        for _ in range(_TRIES):
            if found is not None:
                return found
            found = await self._look_up(name, create)
            if found is None:
                await self._clock.sleep(_PAUSE_S)
        raise Unavailable(f"topic {name} has no leaders yet", "Try again in a moment")

    async def describe(self, names: list[str] | None) -> metadata.MetadataResponse:
        """Brokers and topics; None asks for all topics."""
        topics = None if names is None else [metadata.MetadataRequestTopic(name=name) for name in names]
        request = metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        return await self._metadata(request)

    def forget(self, name: str) -> None:
        """Look the topic up anew next time: its leaders have changed."""
        self._topics.pop(name, None)

    async def pause(self, seconds: float) -> None:
        """Give the cluster a moment."""
        await self._clock.sleep(seconds)

    async def close(self) -> None:
        for connection in self._open.values():
            await connection.close()
        self._open.clear()

    async def _look_up(self, name: str, create: bool) -> metadata.MetadataResponseTopic | None:
        wanted = [metadata.MetadataRequestTopic(name=name)]
        answer = await self._metadata(metadata.MetadataRequest(topics=wanted, allow_auto_topic_creation=create))
        topic = answer.topics[0]
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not create:
            raise NotFound(f"there is no topic {name}", f"Create it with 'lakebed topics create {name}'")
        if topic.error_code in (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            return None
        if topic.error_code:
            raise Refused(f"topic {name}", topic.error_code)
        self._topics[name] = topic
        return topic

    async def _metadata(self, request: metadata.MetadataRequest) -> metadata.MetadataResponse:
        answer = await self.ask(Api.METADATA, request)
        assert isinstance(answer, metadata.MetadataResponse)
        self._brokers = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        return answer
