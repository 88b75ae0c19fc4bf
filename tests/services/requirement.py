"""What happens when a part that a test needs cannot be had: a skip with the reason, or a failure where all is required."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def require(part: str, reason: str) -> NoReturn:
    """Skip for want of `part`. With LAKEBED_REQUIRE_ALL=1 fail, unless LAKEBED_CANNOT_HAVE (a,b,c) names the part."""
    message = f"{part} cannot be had: {reason}"
    excused = part in os.environ.get("LAKEBED_CANNOT_HAVE", "").split(",")
    if os.environ.get("LAKEBED_REQUIRE_ALL") == "1" and not excused:
        pytest.fail(message)
    pytest.skip(message)
