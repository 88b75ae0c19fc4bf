"""Logs: shape, levels, correlation, and what must never come out."""

from __future__ import annotations

import asyncio
import io
import json
import logging

import pytest

from lakebed.clock import FakeClock
from lakebed.config import Secret
from lakebed.observe import Logs, correlated


def logs(format: str = "json", level: str = "debug") -> tuple[Logs, io.StringIO]:
    out = io.StringIO()
    return Logs(level, format, out, FakeClock()), out  # type: ignore[arg-type]


def events(out: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_json_event_has_time_level_room_and_facts() -> None:
    made, out = logs()
    made.logger("kernel").info("checkpoint written", version=120)
    assert events(out) == [
        {
            "timestamp": "2023-11-14T22:13:20.000Z",
            "level": "info",
            "logger": "kernel",
            "event": "checkpoint written",
            "version": 120,
        }
    ]


def test_human_event_is_one_line() -> None:
    made, out = logs("human")
    made.logger("kernel").warning("slow commit", took_s=1.5, log="meta/domain=00", why="two words")
    assert (
        out.getvalue() == '22:13:20.000 warning kernel   slow commit  took_s=1.5 log=meta/domain=00 why="two words"\n'
    )


def test_human_event_cannot_fake_a_second_line() -> None:
    made, out = logs("human")
    made.logger("kernel").info("a\nb\x1b[31m", key="c\nd")
    assert out.getvalue().count("\n") == 1
    assert "\x1b" not in out.getvalue()


def test_less_important_events_are_left_out() -> None:
    made, out = logs(level="warning")
    made.logger("kernel").info("quiet")
    made.logger("kernel").error("loud")
    assert [event["event"] for event in events(out)] == ["loud"]


def test_silent_logs_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Logs.silent().logger("kernel").error("anything")
    assert capsys.readouterr() == ("", "")


async def test_correlation_ids_follow_tasks_and_end_with_their_block() -> None:
    made, out = logs()
    log = made.logger("kernel")

    async def work(name: str) -> None:
        with correlated(request_id=name):
            await asyncio.sleep(0)
            log.info("inside")

    with correlated(client="c1"):
        await asyncio.gather(work("r1"), work("r2"))
    log.info("outside")
    seen = [(event.get("client"), event.get("request_id")) for event in events(out)]
    assert seen == [("c1", "r1"), ("c1", "r2"), (None, None)]


@pytest.mark.parametrize("format", ["json", "human"])
def test_no_secret_is_written(format: str) -> None:
    made, out = logs(format)
    made.logger("kernel").info(
        "connected",
        password="hunter2",
        AWS_SECRET_ACCESS_KEY="hunter2",
        session_token="hunter2",
        value=Secret("hunter2"),
        url="s3://user:hunter2@bucket/x",
        nested={"headers": [{"Authorization": "hunter2"}], "api_key": b"hunter2"},
        listed=[Secret("hunter2")],
    )
    assert "hunter2" not in out.getvalue()


def test_fencing_token_and_key_id_are_no_secrets() -> None:
    made, out = logs()
    made.logger("kernel").info("fenced", token=7, access_key_id="AK1", key="topic/1")
    assert events(out)[0] | {"token": 7, "access_key_id": "AK1", "key": "topic/1"} == events(out)[0]


def test_any_value_can_be_logged_and_size_is_bounded() -> None:
    made, out = logs()
    ring: list[object] = []
    ring.append(ring)
    made.logger("kernel").info(
        "odd", text="x" * 100_000, many=list(range(10_000)), ring=ring, raw=b"\xff", nan=float("nan"), pair={(1, 2): 3},
        broken="\ud800", error=ValueError("why"),
    )  # fmt: skip
    assert len(out.getvalue()) < 10_000
    assert events(out)[0]["error"] == "why"


def test_exception_brings_its_traceback() -> None:
    made, out = logs()
    try:
        raise KeyError("lost")
    except KeyError:
        made.logger("kernel").exception("failed")
    assert "KeyError: 'lost'" in str(events(out)[0]["exception"])


def test_closed_stream_costs_the_line_and_not_the_program() -> None:
    made, out = logs()
    out.close()
    made.logger("kernel").info("nobody hears")


def test_library_logging_comes_out_while_asked() -> None:
    made, out = logs()
    with made.with_standard_library():
        logging.getLogger("vendor").warning("odd %s", "thing")
    logging.getLogger("vendor").warning("after")
    assert [(event["logger"], event["event"]) for event in events(out)] == [("vendor", "odd thing")]
