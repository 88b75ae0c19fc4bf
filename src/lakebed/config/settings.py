"""What can be set, with its default and its meaning.

A field's name carries its unit; the key a person writes does not, because the value does (`retention: 7d`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from lakebed.config.table_settings import SettleSettings, SparkSettings, TablesSettings
from lakebed.config.values import Address, ByteCount, Seconds, Secret

_DAY = 86_400


class KernelSettings(Struct, frozen=True, kw_only=True):
    """The commit log under everything"""

    retention_s: Annotated[
        Seconds, Meta(ge=60, description="How long old versions stay readable; clean-up takes what is older")
    ] = field(name="retention", default=Seconds(7 * _DAY))
    checkpoint_every: Annotated[
        int, Meta(ge=1, le=10_000, description="Commits between checkpoints at first; stretched as the state grows")
    ] = 10
    checkpoint_compression: Annotated[Literal["none", "zstd"], Meta(description="How checkpoints are compressed")] = (
        "none"
    )
    group_max_transactions: Annotated[
        int, Meta(ge=1, le=100_000, description="At most so many waiting transactions share one commit")
    ] = 512
    group_max_bytes: Annotated[
        ByteCount, Meta(ge=1000, le=64_000_000, description="At most so many bytes go into one commit")
    ] = ByteCount(4_000_000)
    queue_limit: Annotated[
        int,
        Meta(ge=1, le=10_000_000, description="At most so many transactions wait; more are told to come back later"),
    ] = 10_000
    commit_timeout_s: Annotated[
        Seconds, Meta(ge=0.1, le=3600, description="After so long a commit is answered as unknown")
    ] = field(name="commit_timeout", default=Seconds(30))
    retry_limit: Annotated[
        int, Meta(ge=0, le=100_000, description="How often a transaction is decided anew when others were faster")
    ] = 100
    turn_after: Annotated[
        int, Meta(ge=1, le=1000, description="Who has lost so many races on a disk asks the others to let it go first")
    ] = 4
    turn_wait_s: Annotated[
        Seconds, Meta(ge=0.001, le=60, description="How long the others wait for it; then they go on")
    ] = field(name="turn_wait", default=Seconds(0.5))
    quick_commit_s: Annotated[
        Seconds,
        Meta(
            ge=0, le=1, description="Commits to a disk that can do one in less are not handed to a thread; 0: all are"
        ),
    ] = field(name="quick_commit", default=Seconds(0.001))
    journal_bytes: Annotated[
        ByteCount,
        Meta(ge=0, le=1_000_000_000, description="On a disk, a busy log gets a journal of this size; 0: none does"),
    ] = ByteCount(16_000_000)
    journal_after: Annotated[
        int, Meta(ge=0, le=1_000_000, description="So many commits of one process make a log a busy one")
    ] = 256
    poll_interval_s: Annotated[
        Seconds, Meta(ge=0.01, le=60, description="How often a bucket is asked for commits of other processes")
    ] = field(name="poll_interval", default=Seconds(0.25))


class WalSettings(Struct, frozen=True, kw_only=True):
    """Write-ahead objects: how records are gathered, cached and collected"""

    flush_bytes: Annotated[
        ByteCount, Meta(ge=1000, le=256_000_000, description="A flush begins at once when so many bytes wait")
    ] = ByteCount(8_000_000)
    flush_linger_s: Annotated[
        Seconds | None,
        Meta(
            ge=0, le=10, description="How long a flush waits for company; unset, 0 for a folder and 50ms for a bucket"
        ),
    ] = field(name="flush_linger", default=None)
    puts_in_flight: Annotated[
        int, Meta(ge=1, le=64, description="At most so many objects of one domain are being written at once")
    ] = 4
    names_ahead: Annotated[
        int,
        Meta(ge=0, le=256, description="In a folder, under load, so many names are taken at once; 0 for none"),
    ] = 32
    put_timeout_s: Annotated[
        Seconds,
        Meta(ge=0.1, le=3600, description="After so long a flush is given up and its producers are told to retry"),
    ] = field(name="put_timeout", default=Seconds(30))
    buffer_bytes: Annotated[
        ByteCount, Meta(ge=1_000_000, description="Unacknowledged bytes held before sockets are no longer read")
    ] = ByteCount(64_000_000)
    tail_cache_bytes: Annotated[
        ByteCount, Meta(ge=0, description="Just-flushed bytes kept for consumers at the end of their streams")
    ] = ByteCount(64_000_000)
    range_cache_bytes: Annotated[
        ByteCount, Meta(ge=0, description="Bytes read from write-ahead objects kept for the next consumer")
    ] = ByteCount(64_000_000)
    orphan_ttl_s: Annotated[
        Seconds, Meta(ge=60, description="An object that no commit names is deleted when it is so old")
    ] = field(name="orphan_ttl", default=Seconds(_DAY))
    gc_objects_max: Annotated[
        int,
        Meta(ge=1000, description="At most so many of them are deleted in one round (see streams.retention_interval)"),
    ] = 200_000
    gc_grace_s: Annotated[
        Seconds, Meta(ge=1, description="An object that is no longer named is deleted after so long")
    ] = field(name="gc_grace", default=Seconds(600))


class FetchSettings(Struct, frozen=True, kw_only=True):
    """Fetches from settled files, whose rows become record batches again"""

    cache_bytes: Annotated[
        ByteCount,
        Meta(ge=0, description="Row groups being read and batches made from them kept for whoever goes on"),
    ] = ByteCount(192_000_000)
    decode_bytes: Annotated[
        ByteCount, Meta(ge=1_000_000, description="Bytes of settled rows that become batches at one time")
    ] = ByteCount(64_000_000)
    decode_threads: Annotated[int, Meta(ge=1, le=64, description="Threads that do it")] = 2


class StreamSettings(Struct, frozen=True, kw_only=True):
    """Topics and their streams"""

    producer_expiry_s: Annotated[
        Seconds, Meta(ge=60, description="An idempotent producer that is silent for so long is forgotten")
    ] = field(name="producer_expiry", default=Seconds(_DAY))
    retention_interval_s: Annotated[
        Seconds, Meta(ge=1, le=86_400, description="How often retention is looked after")
    ] = field(name="retention_interval", default=Seconds(60))
    topic_patience_s: Annotated[
        Seconds,
        Meta(ge=10, le=86_400, description="A creation or extension of a topic that takes longer is undone"),
    ] = field(name="topic_patience", default=Seconds(600))


class LogStoreSettings(Struct, frozen=True, kw_only=True):
    """Where the commit logs live"""

    kind: Annotated[
        Literal["auto", "files", "objects", "oxia"],
        Meta(description="auto takes files for a folder and objects for a bucket"),
    ] = "auto"
    oxia_address: Annotated[Address, Meta(description="Service address of the Oxia cluster")] = Address(
        "127.0.0.1", 6648
    )
    oxia_namespace: Annotated[str, Meta(description="Oxia namespace; every root needs its own")] = "default"


class ObjectSettings(Struct, frozen=True, kw_only=True):
    """How a bucket is reached; a folder needs none of it"""

    endpoint: Annotated[str | None, Meta(description="URL of the service, when it is not the cloud provider's own")] = (
        None
    )
    region: Annotated[str | None, Meta(description="Region of the bucket")] = None
    account: Annotated[str | None, Meta(description="Azure: the storage account")] = None
    access_key: Annotated[
        Secret | None,
        Meta(description="S3: the access key id; unset, credentials come from where the vendor's tools look"),
    ] = None
    secret_key: Annotated[
        Secret | None,
        Meta(description="S3: the secret access key; Azure: the account key; Google: the service account's JSON key"),
    ] = None
    token: Annotated[Secret | None, Meta(description="S3: the session token; Azure and Google: a bearer token")] = None
    anonymous: Annotated[bool, Meta(description="Send requests unsigned")] = False
    timeout_s: Annotated[
        Seconds, Meta(ge=0.1, le=3600, description="How long one request may take; a large upload is several")
    ] = field(name="timeout", default=Seconds(30))
    retry_timeout_s: Annotated[
        Seconds, Meta(ge=0, le=3600, description="How long a request that may be repeated is repeated")
    ] = field(name="retry_timeout", default=Seconds(20))
    retries: Annotated[int, Meta(ge=0, le=100, description="How often a request that may be repeated is repeated")] = 5


class LeaseSettings(Struct, frozen=True, kw_only=True):
    """Leases: who may act for a while"""

    ttl_s: Annotated[
        Seconds, Meta(ge=0.5, le=3600, description="A lease that is not renewed for so long may be taken over")
    ] = field(name="ttl", default=Seconds(10))


class KafkaSettings(Struct, frozen=True, kw_only=True):
    """The Kafka listeners, and what their clients may take"""

    listen: Annotated[Address, Meta(description="Where Kafka clients connect")] = Address("127.0.0.1", 9092)
    listener_name: Annotated[str, Meta(description="What that listener is called where it is advertised")] = "PLAINTEXT"
    listeners: Annotated[
        str | None, Meta(description="Further listeners, such as INSIDE=127.0.0.1:9093,OUTSIDE=127.0.0.1:9094")
    ] = None
    advertised: Annotated[
        str | None,
        Meta(description="Addresses told to clients where they differ, such as PLAINTEXT=broker.example.com:9092"),
    ] = None
    connections_max: Annotated[
        int, Meta(ge=1, le=1_000_000, description="More connections than this are closed at once")
    ] = 10_000
    lanes_max: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000,
            description="Connections that are read and answered together while they repeat an offset commit; 0: none",
        ),
    ] = 4_000
    request_max_bytes: Annotated[
        ByteCount, Meta(ge=1000, le=2_000_000_000, description="A client that sends a larger request is disconnected")
    ] = ByteCount(100 * 1024 * 1024)
    memory_bytes: Annotated[
        ByteCount,
        Meta(
            ge=1_000_000,
            description="Requests, and apart from them unread answers, held in memory; beyond it clients wait",
        ),
    ] = ByteCount(256_000_000)
    in_flight_max: Annotated[
        int, Meta(ge=1, le=10_000, description="Requests of one connection that are at work or wait")
    ] = 128
    in_flight_bytes: Annotated[
        ByteCount, Meta(ge=1000, description="Bytes of requests of one connection that are at work or wait")
    ] = ByteCount(64_000_000)
    idle_timeout_s: Annotated[
        Seconds, Meta(ge=1, le=86_400, description="A connection that asks nothing for so long is closed")
    ] = field(name="idle_timeout", default=Seconds(600))
    receive_timeout_s: Annotated[
        Seconds, Meta(ge=0.1, le=3600, description="How long a small request may take to arrive; a large one longer")
    ] = field(name="receive_timeout", default=Seconds(30))
    send_timeout_s: Annotated[
        Seconds,
        Meta(ge=0.1, le=3600, description="A client that does not read its answers for so long is disconnected"),
    ] = field(name="send_timeout", default=Seconds(60))
    drain_timeout_s: Annotated[
        Seconds, Meta(ge=0, le=3600, description="How long a stopping broker lets requests at work finish")
    ] = field(name="drain_timeout", default=Seconds(30))
    fetch_max_bytes: Annotated[
        ByteCount, Meta(ge=1024, le=1_000_000_000, description="The most that one fetch returns, whatever it asks for")
    ] = ByteCount(55 * 1024 * 1024)
    fetch_at_hand_bytes: Annotated[
        ByteCount,
        Meta(
            ge=1024,
            le=1_000_000_000,
            description="A fetch that finds so much in memory is answered with that; the client is back for more sooner",
        ),
    ] = ByteCount(4 * 1024 * 1024)
    send_buffer_bytes: Annotated[
        ByteCount,
        Meta(
            ge=0,
            le=1_000_000_000,
            description="What the system holds of answers on their way to a client; 0: what the system likes",
        ),
    ] = ByteCount(256 * 1024)


class BrokerSettings(Struct, frozen=True, kw_only=True):
    """This broker among others on the same root"""

    id: Annotated[
        int | None, Meta(ge=0, le=2_147_483_647, description="Its number; unset, it takes the lowest that is free")
    ] = None
    zone: Annotated[str, Meta(description="Its zone; clients that name one in client.id are sent to brokers there")] = (
        "default"
    )
    rack: Annotated[str | None, Meta(description="Told to clients as the broker's rack; unset, its zone")] = None


class RoutingSettings(Struct, frozen=True, kw_only=True):
    """Which broker serves whom"""

    enforce_owner: Annotated[
        bool, Meta(description="Send clients on to the broker that is named leader instead of serving anyway")
    ] = False


class TopicSettings(Struct, frozen=True, kw_only=True):
    """What becomes a topic, and what it starts with"""

    auto_create: Annotated[bool, Meta(description="Create a topic when a client first asks for it")] = True
    partitions: Annotated[
        int, Meta(ge=1, le=100_000, description="Partitions of a topic that is created without a number of them")
    ] = 1


class GroupsSettings(Struct, frozen=True, kw_only=True):
    """Consumer groups"""

    slots: Annotated[
        int,
        Meta(ge=1, le=1024, description="Shares of all groups, each led by one broker; fixed by a root's first broker"),
    ] = 8
    session_timeout_min_s: Annotated[
        Seconds, Meta(ge=0.001, le=86_400, description="The shortest session that a classic member may ask for")
    ] = field(name="session_timeout_min", default=Seconds(6))
    session_timeout_max_s: Annotated[
        Seconds, Meta(ge=0.001, le=86_400, description="The longest session that a classic member may ask for")
    ] = field(name="session_timeout_max", default=Seconds(1800))
    initial_rebalance_delay_s: Annotated[
        Seconds, Meta(ge=0, le=3600, description="How long a new classic group waits for more members")
    ] = field(name="initial_rebalance_delay", default=Seconds(3))
    members_max: Annotated[int, Meta(ge=1, le=2_147_483_647, description="Members that one group may have")] = (
        2_147_483_647
    )
    consumer_session_timeout_s: Annotated[
        Seconds, Meta(ge=0.1, le=86_400, description="A member of a consumer group that is silent for so long is out")
    ] = field(name="consumer_session_timeout", default=Seconds(45))
    consumer_heartbeat_interval_s: Annotated[
        Seconds, Meta(ge=0.05, le=86_400, description="How often members of consumer groups are told to report")
    ] = field(name="consumer_heartbeat_interval", default=Seconds(5))
    assignor: Annotated[
        Literal["uniform", "range"], Meta(description="Used for consumer groups whose members name none")
    ] = "uniform"
    offset_metadata_max_bytes: Annotated[
        ByteCount, Meta(ge=0, le=1_000_000, description="Longer metadata of a committed offset is refused")
    ] = ByteCount(4096)
    offsets_retention_s: Annotated[
        Seconds, Meta(ge=1, description="Offsets that nobody commits or subscribes to for so long are forgotten")
    ] = field(name="offsets_retention", default=Seconds(7 * _DAY))
    sweep_interval_s: Annotated[
        Seconds, Meta(ge=0.1, le=86_400, description="How often offsets to forget are looked for")
    ] = field(name="sweep_interval", default=Seconds(600))


class HttpSettings(Struct, frozen=True, kw_only=True):
    """The HTTP listener"""

    listen: Annotated[Address, Meta(description="Where HTTP clients connect")] = Address("127.0.0.1", 8080)


class LoggingSettings(Struct, frozen=True, kw_only=True):
    """What the program tells about itself, on standard error"""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="The least important event that is written")
    ] = "info"
    format: Annotated[Literal["human", "json"], Meta(description="For a person or for a machine")] = "human"


class Settings(Struct, frozen=True, kw_only=True):
    """Everything that can be set."""

    root: Annotated[
        str,
        Meta(
            description="Where everything is kept: a folder, or a bucket such as s3://bucket/prefix (also LAKEBED_ROOT)"
        ),
    ] = "./lakebed-data"
    domains: Annotated[
        int, Meta(ge=1, le=256, description="Number of commit logs that share the topics; fixed when a root is created")
    ] = 1
    kernel: KernelSettings = KernelSettings()
    log_store: LogStoreSettings = LogStoreSettings()
    wal: WalSettings = WalSettings()
    fetch: FetchSettings = FetchSettings()
    streams: StreamSettings = StreamSettings()
    objects: ObjectSettings = ObjectSettings()
    leases: LeaseSettings = LeaseSettings()
    kafka: KafkaSettings = KafkaSettings()
    broker: BrokerSettings = BrokerSettings()
    routing: RoutingSettings = RoutingSettings()
    topics: TopicSettings = TopicSettings()
    groups: GroupsSettings = GroupsSettings()
    tables: TablesSettings = TablesSettings()
    settle: SettleSettings = SettleSettings()
    spark: SparkSettings = SparkSettings()
    http: HttpSettings = HttpSettings()
    logging: LoggingSettings = LoggingSettings()
