"""Streams: topics and their partitions, offsets, producers, retention; and reading a range wherever it lies."""

from lakebed.streams.access import OpenRoot, lease_store, log_store, opened_root, oxia_client, store_options
from lakebed.streams.append import append_decision
from lakebed.streams.arrivals import Arrivals, ArrivalsPart
from lakebed.streams.commits import insist
from lakebed.streams.domain import Domain, Memory, cluster_registry, domain_registry, registry_of
from lakebed.streams.index import Bounds, Extent, Removal, bounds, locate
from lakebed.streams.keys import domain_of, stream_domain, stream_key
from lakebed.streams.lifecycle import TopicAdmin
from lakebed.streams.producer_ids import ProducerIds
from lakebed.streams.producers import PRODUCERS, ForgetProducers, Producers, ProducersPart
from lakebed.streams.publish import Epoch, Publishing, last_epoch, publish_decision
from lakebed.streams.reading import Fetched, OutOfRange, StreamReader
from lakebed.streams.refresh import Refresher
from lakebed.streams.retention import TO_THE_END, DeleteRange, Keep
from lakebed.streams.sequences import ProducerState, describe
from lakebed.streams.settling import (
    SETTLE_JOB,
    JobFile,
    JobKind,
    JobRange,
    JobRecord,
    JobState,
    KeptBatches,
    begin_decision,
    done_record,
    job_key,
    job_of,
    open_jobs,
    settle_resource,
    step_decision,
    swap_decision,
)
from lakebed.streams.sweeper import Sweeper
from lakebed.streams.timestamps import NOWHERE, Found, TimeIndex
from lakebed.streams.topic_configs import TABLE, ConfigKey, Kind, TopicRules, check_configs, rules_of, value_of
from lakebed.streams.topics import Catalogue, Topic, TopicRecord, check_name, check_partitions

__all__ = [
    "NOWHERE",
    "PRODUCERS",
    "SETTLE_JOB",
    "TABLE",
    "TO_THE_END",
    "Arrivals",
    "ArrivalsPart",
    "Bounds",
    "Catalogue",
    "ConfigKey",
    "DeleteRange",
    "Domain",
    "Epoch",
    "Extent",
    "Fetched",
    "ForgetProducers",
    "Found",
    "JobFile",
    "JobKind",
    "JobRange",
    "JobRecord",
    "JobState",
    "Keep",
    "KeptBatches",
    "Kind",
    "Memory",
    "OpenRoot",
    "OutOfRange",
    "ProducerIds",
    "ProducerState",
    "Producers",
    "ProducersPart",
    "Publishing",
    "Refresher",
    "Removal",
    "StreamReader",
    "Sweeper",
    "TimeIndex",
    "Topic",
    "TopicAdmin",
    "TopicRecord",
    "TopicRules",
    "append_decision",
    "begin_decision",
    "bounds",
    "check_configs",
    "check_name",
    "check_partitions",
    "cluster_registry",
    "describe",
    "domain_of",
    "domain_registry",
    "done_record",
    "insist",
    "job_key",
    "job_of",
    "last_epoch",
    "lease_store",
    "locate",
    "log_store",
    "open_jobs",
    "opened_root",
    "oxia_client",
    "publish_decision",
    "registry_of",
    "rules_of",
    "settle_resource",
    "step_decision",
    "store_options",
    "stream_domain",
    "stream_key",
    "swap_decision",
    "value_of",
]
