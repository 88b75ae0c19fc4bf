"""A small Kafka client for the command line: what `lakebed topics`, `produce` and `consume` speak."""

from lakebed.broker.client.admin import alter_topic, create_topic, delete_topic, topic_configs, widen_topic
from lakebed.broker.client.cluster import Cluster, Refused
from lakebed.broker.client.connection import BrokerConnection
from lakebed.broker.client.consuming import EARLIEST, LATEST, Consumed, Reader
from lakebed.broker.client.partitioner import murmur2, partition_for
from lakebed.broker.client.producing import Writer

__all__ = [
    "EARLIEST",
    "LATEST",
    "BrokerConnection",
    "Cluster",
    "Consumed",
    "Reader",
    "Refused",
    "Writer",
    "alter_topic",
    "create_topic",
    "delete_topic",
    "murmur2",
    "partition_for",
    "topic_configs",
    "widen_topic",
]
