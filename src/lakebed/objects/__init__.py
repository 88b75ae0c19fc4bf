"""Object stores: a folder or a bucket that can create, compare and swap; and leases on top of them."""

from lakebed.objects.disk import Disk
from lakebed.objects.files import Files
from lakebed.objects.port import Body, ETag, Key, ObjectInfo, ObjectStore

__all__ = ["Body", "Disk", "ETag", "Files", "Key", "ObjectInfo", "ObjectStore"]
