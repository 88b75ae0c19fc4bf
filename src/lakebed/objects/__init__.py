"""Object stores: a folder or a bucket that can create, compare and swap; and leases on top of them."""

from lakebed.objects.cloud import CloudStore
from lakebed.objects.disk import Disk, Folder
from lakebed.objects.faults import Drawn, Fault, FaultRates, FaultSchedule
from lakebed.objects.faulty import FaultyStore
from lakebed.objects.files import Files
from lakebed.objects.keys import check_key
from lakebed.objects.leases import Holding, Lease, Leases
from lakebed.objects.local import LocalStore
from lakebed.objects.memory import MemoryStore
from lakebed.objects.open import StoreOptions, open_store
from lakebed.objects.oxia_client import OXIA_ABSENT, OxiaClient, OxiaRecord
from lakebed.objects.oxia_leases import OxiaLeases
from lakebed.objects.port import Body, ETag, Key, ObjectInfo, ObjectStore
from lakebed.objects.powercut import PowerCutDisk, PowerLost
from lakebed.objects.probe import prove_preconditions

__all__ = [
    "OXIA_ABSENT",
    "Body",
    "CloudStore",
    "Disk",
    "Drawn",
    "ETag",
    "Fault",
    "FaultRates",
    "FaultSchedule",
    "FaultyStore",
    "Files",
    "Folder",
    "Holding",
    "Key",
    "Lease",
    "Leases",
    "LocalStore",
    "MemoryStore",
    "ObjectInfo",
    "ObjectStore",
    "OxiaClient",
    "OxiaLeases",
    "OxiaRecord",
    "PowerCutDisk",
    "PowerLost",
    "StoreOptions",
    "check_key",
    "open_store",
    "prove_preconditions",
]
