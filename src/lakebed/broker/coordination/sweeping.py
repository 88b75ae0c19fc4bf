"""What a slot's leader clears away: offsets whose time has come, and those of topics that are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lakebed.broker.coordination.catalog import GroupTopics
from lakebed.groups import Coordinator, Step, offset_entries
from lakebed.kernel import View


async def group_chores(topics: GroupTopics) -> Callable[[Coordinator, View, str], Iterator[Step]]:
    """The chores of one round. Their view must be taken at once: its offsets are then of topics that are known or gone."""
    await topics.refresh()
    known = topics.current().names_by_id

    def chores(coordinator: Coordinator, view: View, group_id: str) -> Iterator[Step]:
        for topic_id in {topic_id for topic_id, _, _ in offset_entries(view, group_id)} - known.keys():
            yield coordinator.forget_topic(group_id, topic_id)
        yield coordinator.expire(group_id)

    return chores
