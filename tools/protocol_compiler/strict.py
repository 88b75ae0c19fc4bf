"""The fields that may not be dropped: Kafka's definitions do not call them ignorable, and kio does not say.

Writing a version that lacks such a field while it is set would change the meaning of a message without a word.
"""

from __future__ import annotations

STRICT_FIELDS: dict[str, tuple[str, ...]] = {
    "AddPartitionsToTxnRequest": (
        "AddPartitionsToTxnRequest.transactions",
        "AddPartitionsToTxnRequest.v3_and_below_transactional_id",
        "AddPartitionsToTxnRequest.v3_and_below_producer_id",
        "AddPartitionsToTxnRequest.v3_and_below_producer_epoch",
        "AddPartitionsToTxnRequest.v3_and_below_topics",
    ),
    "AddPartitionsToTxnResponse": (
        "AddPartitionsToTxnResponse.results_by_transaction",
        "AddPartitionsToTxnResponse.results_by_topic_v3_and_below",
    ),
    "ConsumerGroupHeartbeatRequest": ("ConsumerGroupHeartbeatRequest.subscribed_topic_regex",),
    "DeleteTopicsRequest": ("DeleteTopicsRequest.topics",),
    "DescribeClusterRequest": ("DescribeClusterRequest.endpoint_type", "DescribeClusterRequest.include_fenced_brokers"),
    "DescribeClusterResponse": ("DescribeClusterResponse.endpoint_type", "DescribeClusterBroker.is_fenced"),
    "DescribeConfigsRequest": ("DescribeConfigsRequest.include_documentation",),
    "DescribeGroupsRequest": ("DescribeGroupsRequest.include_authorized_operations",),
    "DescribeGroupsResponse": ("DescribedGroup.error_message", "DescribedGroup.authorized_operations"),
    "ElectLeadersRequest": ("ElectLeadersRequest.election_type",),
    "ElectLeadersResponse": ("ElectLeadersResponse.error_code",),
    "FetchRequest": (
        "FetchRequest.replica_id",
        "FetchRequest.replica_state",
        "FetchPartition.last_fetched_epoch",
        "FetchRequest.forgotten_topics_data",
    ),
    "FetchResponse": (
        "FetchResponse.session_id",
        "PartitionData.diverging_epoch",
        "PartitionData.current_leader",
        "PartitionData.snapshot_id",
        "PartitionData.preferred_read_replica",
        "FetchResponse.node_endpoints",
    ),
    "FindCoordinatorRequest": (
        "FindCoordinatorRequest.key",
        "FindCoordinatorRequest.key_type",
        "FindCoordinatorRequest.coordinator_keys",
    ),
    "FindCoordinatorResponse": (
        "FindCoordinatorResponse.error_code",
        "FindCoordinatorResponse.node_id",
        "FindCoordinatorResponse.host",
        "FindCoordinatorResponse.port",
        "FindCoordinatorResponse.coordinators",
    ),
    "HeartbeatRequest": ("HeartbeatRequest.group_instance_id",),
    "InitProducerIdRequest": (
        "InitProducerIdRequest.producer_id",
        "InitProducerIdRequest.producer_epoch",
        "InitProducerIdRequest.enable2_pc",
        "InitProducerIdRequest.keep_prepared_txn",
    ),
    "InitProducerIdResponse": (
        "InitProducerIdResponse.ongoing_txn_producer_id",
        "InitProducerIdResponse.ongoing_txn_producer_epoch",
    ),
    "JoinGroupRequest": ("JoinGroupRequest.group_instance_id",),
    "JoinGroupResponse": ("JoinGroupResponse.skip_assignment",),
    "LeaveGroupRequest": ("LeaveGroupRequest.member_id", "LeaveGroupRequest.members"),
    "LeaveGroupResponse": ("LeaveGroupResponse.members",),
    "ListConfigResourcesRequest": ("ListConfigResourcesRequest.resource_types",),
    "ListGroupsRequest": ("ListGroupsRequest.states_filter", "ListGroupsRequest.types_filter"),
    "ListOffsetsRequest": ("ListOffsetsRequest.isolation_level",),
    "ListOffsetsResponse": ("ListOffsetsPartitionResponse.leader_epoch",),
    "ListTransactionsRequest": (
        "ListTransactionsRequest.duration_filter",
        "ListTransactionsRequest.transactional_id_pattern",
    ),
    "MetadataRequest": (
        "MetadataRequest.allow_auto_topic_creation",
        "MetadataRequest.include_cluster_authorized_operations",
        "MetadataRequest.include_topic_authorized_operations",
    ),
    "MetadataResponse": (
        "MetadataResponseTopic.topic_authorized_operations",
        "MetadataResponse.cluster_authorized_operations",
    ),
    "OffsetCommitRequest": ("OffsetCommitRequest.group_instance_id",),
    "OffsetFetchRequest": (
        "OffsetFetchRequest.group_id",
        "OffsetFetchRequest.topics",
        "OffsetFetchRequest.groups",
        "OffsetFetchRequest.require_stable",
    ),
    "OffsetFetchResponse": ("OffsetFetchResponse.topics", "OffsetFetchResponse.groups"),
    "ProduceResponse": ("PartitionProduceResponse.current_leader", "ProduceResponse.node_endpoints"),
    "SyncGroupRequest": ("SyncGroupRequest.group_instance_id",),
    "TxnOffsetCommitRequest": (
        "TxnOffsetCommitRequest.generation_id",
        "TxnOffsetCommitRequest.member_id",
        "TxnOffsetCommitRequest.group_instance_id",
    ),
}
