"""Throwing the last connection to Oxia away does not wait for gRPC's own thread, which has been seen to last for ever."""

from __future__ import annotations

import subprocess
import sys

_LIFE = """
import asyncio, gc, threading
from lakebed.objects.oxia_channel import OxiaChannel, Wire

async def connect():
    await OxiaChannel(Wire(), "127.0.0.1:1").close()

asyncio.run(connect())
gc.collect()
print(threading.active_count())
"""


def test_grpcs_thread_outlives_the_last_connection_and_the_process_ends() -> None:
    """In a process of its own: any other client in this one would keep the thread too."""
    life = subprocess.run([sys.executable, "-c", _LIFE], capture_output=True, text=True, timeout=60)
    assert (life.returncode, life.stdout) == (0, "2\n"), life.stderr
