"""OffsetCommit, v2-10. v2-4 set a retention, v6 adds leader epochs, v7 the instance id of static members, v9 serves the new
group protocol, v10 names topics by id."""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.broker.answers import Answer
from lakebed.broker.context import Call, Context
from lakebed.broker.coordination import group_code
from lakebed.broker.handlers.group_answers import answer_of_leader
from lakebed.broker.handlers.group_places import Place
from lakebed.errors import LakebedError
from lakebed.groups import OffsetAnswer, OffsetCommit, OffsetToCommit
from lakebed.protocol import Api, ErrorCode
from lakebed.protocol import offset_commit as wire
from lakebed.streams import Topic

API, VERSIONS = Api.OFFSET_COMMIT, range(2, 11)

_IDS_FROM = 10


def handle(request: wire.OffsetCommitRequest, call: Call, context: Context) -> Answer:
    """Store what a group has read; what is of no topic is refused by itself."""
    commit = Commit(request, call, context)
    return _committed(commit, context) if commit.knows_topics else _look_and_commit(commit, context)


class Commit:
    """A request, and what is known of its topics."""

    def __init__(self, request: wire.OffsetCommitRequest, call: Call, context: Context) -> None:
        self.call, self._request = call, request
        topics = context.topics
        # Each with its id and what is known of it; None where there is no such topic.
        self._found: list[tuple[wire.OffsetCommitRequestTopic, bytes, Topic | None]] = []
        for asked in request.topics:
            topic = topics.find(asked.name) if call.version < _IDS_FROM else topics.find_id(asked.topic_id)
            self._found.append((asked, b"" if topic is None else topic.id.bytes, topic))

    @property
    def knows_topics(self) -> bool:
        return None not in [topic for _, _, topic in self._found]

    @property
    def is_whole(self) -> bool:
        """Whether all its topics and partitions exist."""
        return len(self._offsets()) == sum(len(asked.partitions) for asked in self._request.topics)

    def again(self, context: Context) -> Commit:
        """The same with what is known now."""
        return Commit(self._request, self.call, context)

    def asked(self) -> OffsetCommit:
        """What the group's coordinator is asked for."""
        request = self._request
        return OffsetCommit(
            request.group_id,
            request.generation_id_or_member_epoch,
            request.member_id,
            request.group_instance_id,
            self._offsets(),
            request.retention_time_ms,
        )

    def told(self, answer: OffsetAnswer) -> wire.OffsetCommitResponse:
        return self.all(answer.code) if answer.code else self._answer(answer.codes)

    def refused(self, error: LakebedError) -> wire.OffsetCommitResponse:
        return self.all(group_code(error))

    def all(self, code: ErrorCode) -> wire.OffsetCommitResponse:
        """The same for all that could have been committed."""
        return self._answer({(each.topic_id, each.partition): code for each in self._offsets()})

    def _offsets(self) -> list[OffsetToCommit]:
        return [
            OffsetToCommit(
                topic_id,
                each.partition_index,
                each.committed_offset,
                each.committed_leader_epoch,
                each.committed_metadata,
            )
            for asked, topic_id, topic in self._found
            if topic is not None
            for each in asked.partitions
            if topic.stream(each.partition_index) is not None
        ]

    def _answer(self, codes: Mapping[Place, ErrorCode]) -> wire.OffsetCommitResponse:
        """`codes` has all places that there are."""
        topics = []
        for asked, topic_id, topic in self._found:
            unknown_id = topic is None and self.call.version >= _IDS_FROM
            missing = ErrorCode.UNKNOWN_TOPIC_ID if unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            partitions = [
                wire.OffsetCommitResponsePartition(
                    each.partition_index, codes.get((topic_id, each.partition_index), missing)
                )
                for each in asked.partitions
            ]
            topics.append(wire.OffsetCommitResponseTopic(asked.topic_id, partitions, asked.name))
        return wire.OffsetCommitResponse(topics=topics)


async def _look_and_commit(commit: Commit, context: Context) -> Answer:
    try:
        await context.topics.refresh()
    except LakebedError as error:
        return commit.again(context).refused(error)
    return _committed(commit.again(context), context)


def _committed(commit: Commit, context: Context) -> Answer:
    asked = commit.asked()
    if not asked.offsets:
        return commit.all(ErrorCode.NONE)
    return answer_of_leader(
        asked.group_id,
        commit.call,
        context,
        lambda coordinator, caller: coordinator.commit_offsets(asked, caller),
        commit.refused,
        commit.told,
    )
