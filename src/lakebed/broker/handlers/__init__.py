"""One file per Kafka API; each opens with its versions and what is special about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakebed.broker.connection import Answer
from lakebed.broker.context import Call, Context
from lakebed.broker.handlers import (
    api_versions,
    describe_cluster,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
    transactions,
)
from lakebed.protocol import Api

__all__ = ["HANDLERS", "MODULES", "api_versions"]

MODULES: tuple[Any, ...] = (
    api_versions,
    describe_cluster,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)

HANDLERS: dict[Api, Callable[[Any, Call, Context], Answer]] = {
    **{module.API: module.handle for module in MODULES},
    **transactions.HANDLERS,
}
