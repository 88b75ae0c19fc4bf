"""Fixtures that every test may ask for: real servers, installed and started when first needed."""

from __future__ import annotations

import contextlib

import pytest
from tools.compile_rooms import is_stale

from tests.services.oxia import oxia_program

pytest_plugins = [
    "tests.services.azure",
    "tests.services.google",
    "tests.services.kafka",
    "tests.services.s3",
    "tests.spark",
]


def pytest_configure() -> None:
    """What would be tested is not what the sources say."""
    if is_stale():
        raise pytest.UsageError("compiled modules are older than their sources: run make setup, or make setup PLAIN=1")


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is built from source takes longer than a test may: it is made before the first. Who needs it hears why it is not."""
    needed = any("oxia_binary" in getattr(item, "fixturenames", ()) for item in session.items)
    if needed and not session.config.option.collectonly:
        with contextlib.suppress(pytest.skip.Exception, pytest.fail.Exception):
            oxia_program()
