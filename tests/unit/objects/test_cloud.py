"""What a bucket's unclear answers become."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest

from lakebed.errors import Ambiguous, Exists, Invalid, Unavailable
from lakebed.objects import ObjectStore, StoreOptions, open_store

SECRET = "do-not-show-me"


class _Lossy(http.server.BaseHTTPRequestHandler):
    """Stores what it is sent, and answers as `mode` says."""

    protocol_version = "HTTP/1.1"
    mode = "500"
    puts = 0
    stored: dict[str, bytes]

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        _Lossy.puts += 1
        taken = self.headers.get("If-None-Match") == "*" and self.path in self.stored
        if not taken:
            self.stored[self.path] = body
        self._answer(412 if taken else None)

    def do_GET(self) -> None:
        self._answer(None)

    def _answer(self, status: int | None) -> None:
        if status is None and self.mode == "drop":
            self.close_connection = True
            return
        if status is None and self.mode == "stall":
            self.server.stalled.wait(10)  # type: ignore[attr-defined]
            self.close_connection = True
            return
        status = int(self.mode) if status is None else status
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def lossy() -> Iterator[ObjectStore]:
    _Lossy.stored, _Lossy.puts = {}, 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Lossy)
    server.stalled = threading.Event()  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = StoreOptions(
        endpoint=f"http://127.0.0.1:{server.server_port}",
        access_key="a",
        secret_key=SECRET,
        timeout_s=0.5,
        retries=1,
        retry_timeout_s=1.0,
    )
    yield open_store("s3://bucket/prefix", options)
    server.stalled.set()  # type: ignore[attr-defined]
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("mode", ["500", "503", "drop", "stall"])
async def test_create_whose_answer_is_lost_is_ambiguous_and_sent_once(lossy: ObjectStore, mode: str) -> None:
    _Lossy.mode = mode
    with pytest.raises(Ambiguous):
        await lossy.create("one", b"body")
    assert (_Lossy.puts, list(_Lossy.stored.values())) == (1, [b"body"])
    with pytest.raises(Exists):
        await lossy.create("one", b"other")


@pytest.mark.parametrize("mode", ["500", "drop"])
async def test_read_whose_answer_is_lost_is_unavailable(lossy: ObjectStore, mode: str) -> None:
    _Lossy.mode = mode
    with pytest.raises(Unavailable) as error:
        await lossy.get("one")
    assert not isinstance(error.value, Ambiguous)


@pytest.mark.parametrize("mode", ["401", "403"])
async def test_refused_credentials_are_invalid_and_not_shown(lossy: ObjectStore, mode: str) -> None:
    _Lossy.mode = mode
    with pytest.raises(Invalid) as error:
        await lossy.get("one")
    assert SECRET not in str(error.value)
    assert SECRET not in repr(lossy)


def test_options_do_not_show_secrets() -> None:
    options = StoreOptions(access_key=SECRET, secret_key=SECRET, token=SECRET)
    assert SECRET not in f"{options!r} {options}"


@pytest.mark.parametrize(
    "url", ["ftp://x/y", "s3://", "http://bucket", "s3://user:do-not-show-me@bucket/x", "s3://b/a/../c"]
)
def test_bad_address_is_refused_without_showing_a_password(url: str) -> None:
    with pytest.raises(Invalid) as error:
        open_store(url)
    assert SECRET not in str(error.value)


def test_addresses_open_the_right_stores() -> None:
    opened = {url: repr(open_store(url)) for url in ("data", "file:///tmp/some%20data", "memory://")}
    assert opened["file:///tmp/some%20data"] == "LocalStore('/tmp/some data')"
    assert opened["data"].startswith("LocalStore(")
    assert opened["memory://"] == "MemoryStore()"
