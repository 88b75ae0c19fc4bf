"""A small Kafka client for the command line: what `lakebed topics`, `groups`, `produce` and `consume` speak."""

from lakebed.broker.client.admin import alter_topic, create_topic, delete_topic, topic_configs, widen_topic
from lakebed.broker.client.cluster import Cluster, Refused
from lakebed.broker.client.connection import BrokerConnection
from lakebed.broker.client.consuming import EARLIEST, LATEST, Consumed, Reader
from lakebed.broker.client.groups import (
    DescribedGroup,
    GroupMember,
    Progress,
    Target,
    all_groups,
    commit_offsets,
    committed_offsets,
    delete_group,
    describe_group,
    plan_reset,
)
from lakebed.broker.client.partitioner import murmur2, partition_for
from lakebed.broker.client.producing import Writer

__all__ = [
    "EARLIEST",
    "LATEST",
    "BrokerConnection",
    "Cluster",
    "Consumed",
    "DescribedGroup",
    "GroupMember",
    "Progress",
    "Reader",
    "Refused",
    "Target",
    "Writer",
    "all_groups",
    "alter_topic",
    "commit_offsets",
    "committed_offsets",
    "create_topic",
    "delete_group",
    "delete_topic",
    "describe_group",
    "murmur2",
    "partition_for",
    "plan_reset",
    "topic_configs",
    "widen_topic",
]
