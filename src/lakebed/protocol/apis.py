"""The matrix of Kafka's APIs: which versions are read, which are told to clients, and what may come before login.

Invariant: dispatch and the ApiVersions answer both follow `MATRIX`; no other place says what a broker can do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum


class Api(IntEnum):
    """Kafka's number of each API that has a codec here."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


class Standing(Enum):
    """What a broker does with an API."""

    SERVED = "told to clients and handled"
    REFUSED = "not told to clients; a request is read and answered with an error of its own form"
    DORMANT = "has a codec but no handler: treated as an API that is not known"


@dataclass(frozen=True, slots=True)
class Row:
    """One API of the matrix. `advertised` is None where clients are not told."""

    api: Api
    versions: range
    advertised: range | None
    standing: Standing
    before_login: bool


# Taking an API out of this set is what switches it on.
DORMANT = frozenset(
    {
        Api.SASL_HANDSHAKE,
        Api.SASL_AUTHENTICATE,
        Api.DESCRIBE_ACLS,
        Api.CREATE_ACLS,
        Api.DELETE_ACLS,
        Api.DESCRIBE_USER_SCRAM_CREDENTIALS,
        Api.ALTER_USER_SCRAM_CREDENTIALS,
        Api.DESCRIBE_LOG_DIRS,
        Api.ELECT_LEADERS,
        Api.DESCRIBE_CLIENT_QUOTAS,
        Api.GET_TELEMETRY_SUBSCRIPTIONS,
        Api.LIST_CONFIG_RESOURCES,
    }
)

REFUSED = frozenset(
    {
        Api.ADD_PARTITIONS_TO_TXN,
        Api.ADD_OFFSETS_TO_TXN,
        Api.END_TXN,
        Api.WRITE_TXN_MARKERS,
        Api.TXN_OFFSET_COMMIT,
        Api.DESCRIBE_TRANSACTIONS,
        Api.LIST_TRANSACTIONS,
    }
)

BEFORE_LOGIN = frozenset({Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE})

# The newest stable version of each API; InitProducerId 6 is defined but not stable in Kafka.
_VERSIONS: dict[Api, tuple[int, int]] = {
    Api.PRODUCE: (3, 13),
    Api.FETCH: (4, 18),
    Api.LIST_OFFSETS: (1, 11),
    Api.METADATA: (0, 13),
    Api.OFFSET_COMMIT: (2, 10),
    Api.OFFSET_FETCH: (1, 10),
    Api.FIND_COORDINATOR: (0, 6),
    Api.JOIN_GROUP: (0, 9),
    Api.HEARTBEAT: (0, 4),
    Api.LEAVE_GROUP: (0, 5),
    Api.SYNC_GROUP: (0, 5),
    Api.DESCRIBE_GROUPS: (0, 6),
    Api.LIST_GROUPS: (0, 5),
    Api.SASL_HANDSHAKE: (0, 1),
    Api.API_VERSIONS: (0, 4),
    Api.CREATE_TOPICS: (2, 7),
    Api.DELETE_TOPICS: (1, 6),
    Api.DELETE_RECORDS: (0, 2),
    Api.INIT_PRODUCER_ID: (0, 5),
    Api.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    Api.ADD_PARTITIONS_TO_TXN: (0, 5),
    Api.ADD_OFFSETS_TO_TXN: (0, 4),
    Api.END_TXN: (0, 5),
    Api.WRITE_TXN_MARKERS: (1, 2),
    Api.TXN_OFFSET_COMMIT: (0, 5),
    Api.DESCRIBE_ACLS: (1, 3),
    Api.CREATE_ACLS: (1, 3),
    Api.DELETE_ACLS: (1, 3),
    Api.DESCRIBE_CONFIGS: (1, 4),
    Api.ALTER_CONFIGS: (0, 2),
    Api.DESCRIBE_LOG_DIRS: (1, 5),
    Api.SASL_AUTHENTICATE: (0, 2),
    Api.CREATE_PARTITIONS: (0, 3),
    Api.DELETE_GROUPS: (0, 2),
    Api.ELECT_LEADERS: (0, 2),
    Api.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    Api.OFFSET_DELETE: (0, 0),
    Api.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    Api.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    Api.DESCRIBE_CLUSTER: (0, 2),
    Api.DESCRIBE_PRODUCERS: (0, 0),
    Api.DESCRIBE_TRANSACTIONS: (0, 0),
    Api.LIST_TRANSACTIONS: (0, 2),
    Api.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    Api.CONSUMER_GROUP_DESCRIBE: (0, 1),
    Api.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0),
    Api.LIST_CONFIG_RESOURCES: (0, 1),
    Api.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
}

# Older librdkafka takes a first Produce version above 0 to mean that it must not compress.
_TOLD_FROM = {Api.PRODUCE: 0}


def _row(api: Api, first: int, last: int) -> Row:
    standing = Standing.DORMANT if api in DORMANT else Standing.REFUSED if api in REFUSED else Standing.SERVED
    told = range(_TOLD_FROM.get(api, first), last + 1) if standing is Standing.SERVED else None
    return Row(api, range(first, last + 1), told, standing, api in BEFORE_LOGIN)


MATRIX: Mapping[Api, Row] = {api: _row(api, *span) for api, span in _VERSIONS.items()}


def find_row(api_key: int, version: int) -> Row | None:
    """The row to dispatch by, or None when a broker does not know this API in this version."""
    row = _ANSWERED.get(api_key)
    return row if row is not None and version in row.versions else None


def advertised() -> tuple[tuple[int, int, int], ...]:
    """What ApiVersions tells: key, first and last version, in order of key."""
    told = ((row.api.value, row.advertised) for row in MATRIX.values() if row.advertised is not None)
    return tuple((key, versions[0], versions[-1]) for key, versions in sorted(told, key=lambda pair: pair[0]))


_ANSWERED: dict[int, Row] = {row.api.value: row for row in MATRIX.values() if row.standing is not Standing.DORMANT}
