"""S3, Google Cloud Storage and Azure Blob Storage, through obstore.

Conditional writes are sent once and never retried below us, so that `Exists` and `Conflict` speak of others. A write
whose answer is not clear is `Ambiguous`, a read that failed is `Unavailable`. No error is told apart by its text.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from lakebed.errors import Ambiguous, Closed, Conflict, Exists, Invalid, NotFound, Unavailable
from lakebed.objects.keys import check_key, check_range, is_key
from lakebed.objects.port import Body, ETag, Key, ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from obstore import ObjectMeta, PutResult, UpdateVersion
    from obstore.store import ObjectStore as Bucket

T = TypeVar("T")

PART_BYTES = 8 << 20
_PARTS_AT_ONCE = 4
_PAGE = 1000


class CloudStore:
    """`patient` retries by itself and serves what may be repeated; `once` sends every request once.

    `by_generation` is for Google, which compares generations, not etags.
    """

    def __init__(self, name: str, patient: Bucket, once: Bucket, by_generation: bool = False) -> None:
        self.name = name
        self._patient = patient
        self._once = once
        self._by_generation = by_generation
        self._closed = False

    def __repr__(self) -> str:
        return f"CloudStore({self.name!r})"

    async def put(self, key: Key, body: Body | Sequence[Body]) -> ETag:
        whole = body if isinstance(body, bytes | bytearray | memoryview) else b"".join(body)
        with self._writing(key):
            answer = await obstore.put_async(
                self._patient,
                check_key(key),
                _plain(whole),
                use_multipart=memoryview(whole).nbytes > PART_BYTES,
                chunk_size=PART_BYTES,
                max_concurrency=_PARTS_AT_ONCE,
            )
        return await self._etag_of(key, answer)

    async def reserve(self, keys: Sequence[Key]) -> bool:
        return False

    async def create(self, key: Key, body: Body) -> ETag:
        with self._writing(key):
            put = obstore.put_async(self._once, check_key(key), _plain(body), mode="create", use_multipart=False)
            answer = await put
        return await self._etag_of(key, answer)

    async def replace(self, key: Key, body: Body, etag: ETag) -> ETag:
        version = await self._version_to_update(key, etag)
        with self._writing(key):
            put = obstore.put_async(self._once, check_key(key), _plain(body), mode=version, use_multipart=False)
            answer = await put
        return await self._etag_of(key, answer)

    async def head(self, key: Key) -> ObjectInfo:
        return _info(await self._meta(key))

    async def get(self, key: Key) -> tuple[bytes, ETag]:
        with self._reading(key):
            found = await obstore.get_async(self._patient, check_key(key))
            return bytes(await found.bytes_async()), _etag(found.meta)

    async def get_range(self, key: Key, start: int, end: int) -> bytes:
        check_range(start, end)
        if start < end:
            try:
                with self._reading(key):
                    return bytes(await obstore.get_range_async(self._patient, check_key(key), start=start, end=end))
            except Unavailable:
                # Servers refuse a range that begins behind the end: look whether that is all.
                if start < (await self.head(key)).size:
                    raise
        else:
            await self.head(key)
        return b""

    async def get_ranges(self, key: Key, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        for start, end in ranges:
            check_range(start, end)
        if any(start == end for start, end in ranges):
            return await self._get_cut_ranges(key, ranges)
        try:
            return await self._get_whole_ranges(key, ranges)
        except Unavailable:
            return await self._get_cut_ranges(key, ranges)

    async def list(self, prefix: Key = "", after: Key = "", limit: int | None = None) -> AsyncIterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        if limit == 0 or (folder and not is_key(folder)):
            return
        start = _start(prefix, after)
        last, left = after.encode(), limit
        with self._reading(prefix):
            page_size = _PAGE if limit is None else min(_PAGE, limit)
            async for page in obstore.list(self._patient, folder or None, offset=start, chunk_size=page_size):
                for meta in page:
                    raw = meta["path"].encode()
                    if raw > last and raw.startswith(prefix.encode()) and is_key(meta["path"]):
                        yield _info(meta)
                        left = None if left is None else left - 1
                    if left == 0 or (raw > prefix.encode() and not raw.startswith(prefix.encode())):
                        return
                    last = _ascending(last, raw, after.encode(), self)

    async def delete(self, key: Key) -> None:
        try:
            with self._writing(key):
                await obstore.delete_async(self._patient, check_key(key))
        except NotFound:
            return

    async def close(self) -> None:
        self._closed = True

    async def _meta(self, key: Key) -> ObjectMeta:
        with self._reading(key):
            return await obstore.head_async(self._patient, check_key(key))

    async def _etag_of(self, key: Key, answer: PutResult) -> ETag:
        if answer["e_tag"] is not None:
            return _unquoted(answer["e_tag"])
        try:
            return (await self.head(key)).etag
        except (Unavailable, NotFound) as error:
            raise Ambiguous(f"{self.name}/{key} was written, but not seen since", "Read it back") from error

    async def _version_to_update(self, key: Key, etag: ETag) -> UpdateVersion:
        if not self._by_generation:
            return {"e_tag": f'"{etag}"'}
        try:
            meta = await self._meta(key)
        except NotFound:
            raise Conflict(f"{self.name}/{key} is gone") from None
        if _etag(meta) != etag or meta["version"] is None:
            raise Conflict(f"{self.name}/{key} has changed")
        return {"version": meta["version"]}

    async def _get_whole_ranges(self, key: Key, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        if not ranges:
            return []
        with self._reading(key):
            starts, ends = zip(*ranges, strict=True)
            found = await obstore.get_ranges_async(self._patient, check_key(key), starts=starts, ends=ends)
            return [bytes(part) for part in found]

    async def _get_cut_ranges(self, key: Key, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """Ranges that are empty or reach beyond the end: cut to size first."""
        size = (await self.head(key)).size
        cut = [(min(start, size), min(end, size)) for start, end in ranges]
        parts = iter(await self._get_whole_ranges(key, [(start, end) for start, end in cut if start < end]))
        return [next(parts) if start < end else b"" for start, end in cut]

    @contextmanager
    def _reading(self, key: Key) -> Iterator[None]:
        with self._named_errors(key, Unavailable):
            yield

    @contextmanager
    def _writing(self, key: Key) -> Iterator[None]:
        with self._named_errors(key, Ambiguous):
            yield

    @contextmanager
    def _named_errors(self, key: Key, unclear: type[Unavailable]) -> Iterator[None]:
        if self._closed:
            raise Closed(f"{self} is closed")
        try:
            yield
        except FileNotFoundError:
            raise NotFound(f"no object {self.name}/{key}") from None
        except AlreadyExistsError:
            raise Exists(f"{self.name}/{key} exists") from None
        except PreconditionError:
            raise Conflict(f"{self.name}/{key} has changed or is gone") from None
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise Invalid(f"{self.name} refused access to {key}", "Check the credentials and their rights") from error
        except (BaseError, OSError) as error:
            raise unclear(
                f"{self.name}: no clear answer about {key}", "Check endpoint and network, then retry"
            ) from error


def _plain(body: Body) -> bytes | memoryview:
    """What obstore takes without copying where it can."""
    return body if isinstance(body, bytes) else memoryview(body).cast("B")


def _etag(meta: ObjectMeta) -> ETag:
    etag = meta["e_tag"]
    if etag is None:
        raise Invalid(f"the store gives no etag for {meta['path']}", "Use a store that supports compare-and-swap")
    return _unquoted(etag)


def _unquoted(etag: str) -> ETag:
    """Servers quote an etag in one answer and not in the next."""
    return ETag(etag.strip('"'))


def _info(meta: ObjectMeta) -> ObjectInfo:
    return ObjectInfo(meta["path"], meta["size"], _etag(meta), int(meta["last_modified"].timestamp() * 1000))


def _start(prefix: Key, after: Key) -> Key | None:
    """Where to let the server begin: before what is wanted, and only at what it takes for a key."""
    candidates = [before for before in (_before(after), _before(prefix)) if is_key(before)]
    return max(candidates, key=str.encode, default=None)


def _before(key: Key) -> Key:
    """A little less than `key`, and not the name of a folder: some servers skip all of a folder they are to begin at."""
    kept = key.rstrip("".join({letter for letter in key if not "1" <= letter <= "z"}))
    return kept[:-1] + chr(ord(kept[-1]) - 1) + "~" if kept else ""


def _ascending(last: bytes, raw: bytes, after: bytes, store: CloudStore) -> bytes:
    if raw < last and last != after:
        raise Invalid(f"{store} lists out of order", "Use a bucket type that lists keys in order of their bytes")
    return max(last, raw)
