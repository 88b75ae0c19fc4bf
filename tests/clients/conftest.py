"""The brokers behind the names in `brokers.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.brokers import Broker
from tests.services.lakebed_server import lakebed_server

_FIXTURES = {"kafka": "kafka", "lakebed": "lakebed_broker"}


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Broker:
    """The broker that the test's parameter names, started when first asked for."""
    return Broker(request.param, request.getfixturevalue(_FIXTURES[request.param]))


@pytest.fixture(scope="session")
def lakebed_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address of a Lakebed on a folder of its own, one for the whole run."""
    with lakebed_server(tmp_path_factory.mktemp("lakebed")) as server:
        yield server.bootstrap
