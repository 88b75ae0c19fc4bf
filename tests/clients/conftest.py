"""The brokers behind the names in `brokers.py`."""

from __future__ import annotations

import pytest

from tests.clients.brokers import Broker

_FIXTURES = {"kafka": "kafka", "lakebed": "lakebed_broker"}


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Broker:
    """The broker that the test's parameter names, started when first asked for."""
    return Broker(request.param, request.getfixturevalue(_FIXTURES[request.param]))
