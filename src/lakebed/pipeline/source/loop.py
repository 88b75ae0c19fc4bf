"""Asynchronous stores and logs for Spark's synchronous callbacks: one event loop, which runs while someone waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TypeVar

from lakebed.objects import ObjectStore, open_store
from lakebed.pipeline.source.options import Place
from lakebed.streams import OpenRoot, opened_root, store_options

T = TypeVar("T")


class OwnLoop:
    """An event loop and what was opened in it; all of it is closed with it. For one thread."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._root: OpenRoot | None = None
        self._objects: ObjectStore | None = None

    def run(self, work: Coroutine[None, None, T]) -> T:
        """Wait for `work`."""
        return self._runner.run(work)

    def root(self) -> OpenRoot:
        """The root with its logs, opened when first asked for."""
        if self._root is None:
            self._root = self.run(self._stack.enter_async_context(opened_root(self._place.settings())))
        return self._root

    def objects(self) -> ObjectStore:
        """The root's objects alone, which needs no log."""
        if self._root is not None:
            return self._root.objects
        if self._objects is None:
            settings = self._place.settings()
            self._objects = open_store(settings.root, store_options(settings.objects))
            self._stack.push_async_callback(self._objects.close)
        return self._objects

    def close(self) -> None:
        try:
            self.run(self._stack.aclose())
        finally:
            self._runner.close()

    def __enter__(self) -> OwnLoop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
