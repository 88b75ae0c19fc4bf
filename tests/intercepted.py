"""A store whose calls a test can stop, repeat, fail or let pass, one by one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

Hook = Callable[..., Awaitable[Any]]


class Intercepted:
    """Every method is that of `inner`, unless `hooks` has one of its name, which gets the real one and the arguments."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.hooks: dict[str, Hook] = {}

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        hook = self.hooks.get(name)
        return method if hook is None else lambda *args: hook(method, *args)
