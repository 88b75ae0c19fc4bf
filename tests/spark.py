"""One Spark session for all tests that need Spark: two local cores, started when first asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lakebed.config import Settings, SparkSettings
from lakebed.pipeline import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A `local[2]` session made as the program makes it."""
    settings = Settings(spark=SparkSettings(master="local[2]"))
    session = spark_session(settings, app_name="tests")
    yield session
    session.stop()
