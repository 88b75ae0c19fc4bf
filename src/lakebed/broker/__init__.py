"""The Kafka broker: listener, connections, one handler per API; and the small client of the command line."""

from lakebed.broker.answers import Deferred
from lakebed.broker.budget import MemoryBudget, Outgoing
from lakebed.broker.buffers import BufferPool
from lakebed.broker.chores import Chore, Chores
from lakebed.broker.client import (
    EARLIEST,
    LATEST,
    BrokerConnection,
    Cluster,
    Consumed,
    DescribedGroup,
    Reader,
    Refused,
    Target,
    Writer,
    all_groups,
    alter_topic,
    commit_offsets,
    create_topic,
    delete_group,
    delete_topic,
    describe_group,
    murmur2,
    partition_for,
    plan_reset,
    topic_configs,
    widen_topic,
)
from lakebed.broker.connection import Connection
from lakebed.broker.context import Call, Context, Policy
from lakebed.broker.coordination import GroupTopics, Slots
from lakebed.broker.dispatch import Dispatcher
from lakebed.broker.inbox import Intake
from lakebed.broker.limits import Limits
from lakebed.broker.listener import Listener, reserved_port
from lakebed.broker.lookup import TopicLookup
from lakebed.broker.membership import Membership
from lakebed.broker.metrics import ConnectionMetrics
from lakebed.broker.routing import Affinity, Member, named_addresses
from lakebed.broker.workers import Workers

__all__ = [
    "EARLIEST",
    "LATEST",
    "Affinity",
    "BrokerConnection",
    "BufferPool",
    "Call",
    "Chore",
    "Chores",
    "Cluster",
    "Connection",
    "ConnectionMetrics",
    "Consumed",
    "Context",
    "Deferred",
    "DescribedGroup",
    "Dispatcher",
    "GroupTopics",
    "Intake",
    "Limits",
    "Listener",
    "Member",
    "Membership",
    "MemoryBudget",
    "Outgoing",
    "Policy",
    "Reader",
    "Refused",
    "Slots",
    "Target",
    "TopicLookup",
    "Workers",
    "Writer",
    "all_groups",
    "alter_topic",
    "commit_offsets",
    "create_topic",
    "delete_group",
    "delete_topic",
    "describe_group",
    "murmur2",
    "named_addresses",
    "partition_for",
    "plan_reset",
    "reserved_port",
    "topic_configs",
    "widen_topic",
]
