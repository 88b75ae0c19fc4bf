"""Object stores: a folder or a bucket that can create, compare and swap; and leases on top of them."""

from lakebed.objects.disk import Disk
from lakebed.objects.files import Files
from lakebed.objects.oxia_client import OXIA_ABSENT, OxiaClient, OxiaRecord
from lakebed.objects.port import Body, ETag, Key, ObjectInfo, ObjectStore

__all__ = [
    "OXIA_ABSENT",
    "Body",
    "Disk",
    "ETag",
    "Files",
    "Key",
    "ObjectInfo",
    "ObjectStore",
    "OxiaClient",
    "OxiaRecord",
]
