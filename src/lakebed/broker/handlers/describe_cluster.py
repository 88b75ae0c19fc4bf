"""DescribeCluster, v0-2. v1 adds the kind of endpoints asked for: only brokers exist here. v2 adds fenced brokers: none are."""

from __future__ import annotations

from lakebed.broker.context import Call, Context
from lakebed.broker.handlers.metadata import CLUSTER_OPERATIONS, UNASKED, controller
from lakebed.broker.routing import members_for
from lakebed.protocol import Api, ErrorCode
from lakebed.protocol import describe_cluster as wire

API, VERSIONS = Api.DESCRIBE_CLUSTER, range(3)

_BROKERS = 1


def handle(request: wire.DescribeClusterRequest, call: Call, context: Context) -> wire.DescribeClusterResponse:
    """Name the brokers a client of this zone may use."""
    if request.endpoint_type != _BROKERS:
        return wire.DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="there are no controllers: ask for brokers",
            endpoint_type=request.endpoint_type,
        )
    members = members_for(call.client_id, context.membership.members)
    operations = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else UNASKED
    brokers = []
    for member in members:
        at = member.address(call.listener)
        brokers.append(wire.DescribeClusterBroker(member.id, at.host, at.port, member.rack))
    return wire.DescribeClusterResponse(
        cluster_id=context.cluster_id,
        controller_id=controller(members, context),
        brokers=brokers,
        cluster_authorized_operations=operations,
    )
