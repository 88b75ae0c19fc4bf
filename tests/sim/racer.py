"""One process of the race: commits its transactions, tells their versions, then its state once all have finished.

`python -m tests.sim.racer ROOT NAME TRANSACTIONS TASKS`; a line on standard input starts it, another asks for the state.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from pathlib import Path

from lakebed.kernel import Add, CommitLog, Committed, Decision, Put, View
from tests.logs import file_store, open_log, state_bytes

WON: dict[str, int] = {}


async def main(root: Path, name: str, count: int, tasks: int) -> None:
    log = await open_log(file_store(root))
    print("ready", flush=True)
    await _line()
    await asyncio.gather(*(_commit_all(log, name, range(task, count, tasks)) for task in range(tasks)))
    print(json.dumps(WON), flush=True)
    await _line()
    snapshot = await log.refresh()
    print(hashlib.sha256(state_bytes(snapshot)).hexdigest(), flush=True)
    await log.close()


async def _commit_all(log: CommitLog, name: str, numbers: range) -> None:
    for number in numbers:
        txn = f"{name}:{number}"
        while True:
            result = await log.commit(_decide, txn_id=txn)
            if isinstance(result, Committed):
                WON[txn] = result.version
                break


def _decide(view: View) -> Decision[int]:
    entry, stream = view.get("count"), view.stream(1)
    count = (entry.decode(int) if entry else 0) + 1
    start = stream.end if stream else 0
    add = Add(stream=1, offset_start=start, offset_end=start + 1, segment=f"s{count // 50}", size=1)
    return Decision([Put.of("count", count), add], count)


async def _line() -> None:
    await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
