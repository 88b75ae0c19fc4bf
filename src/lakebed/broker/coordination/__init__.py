"""The shell around `lakebed.groups`: leases on slots, commits of steps, timers, and who coordinates what."""

from lakebed.broker.coordination.catalog import GroupTopics
from lakebed.broker.coordination.leader import SlotLeader, Waiting
from lakebed.broker.coordination.refusals import Loading, NotCoordinator, group_code
from lakebed.broker.coordination.reply import Reply
from lakebed.broker.coordination.slots import Slots

__all__ = ["GroupTopics", "Loading", "NotCoordinator", "Reply", "SlotLeader", "Slots", "Waiting", "group_code"]
