"""A root in a folder, with the embedded catalog."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lakebed.tables import TableSettings
from tests.lakes import Lake


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[Lake]:
    opened = Lake(str(tmp_path), TableSettings())
    yield opened
    await opened.close()
