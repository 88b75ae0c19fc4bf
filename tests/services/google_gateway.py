"""The part of Google's XML interface that fake-gcs-server lacks, told to it in JSON.

obstore writes by plain PUT with a generation to match; the server takes uploads and generations only by its JSON interface. The
gateway translates and decides nothing: whether a precondition holds is the server's answer.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from urllib.parse import parse_qs, quote, unquote, urlsplit

_HOP_HEADERS = {"connection", "transfer-encoding", "content-length", "keep-alive"}


@contextmanager
def gateway(server_port: int) -> Iterator[int]:
    """The port of a gateway to the server on `server_port`."""
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), type("Bound", (_Gateway,), {"server_at": server_port, "uploads": {}})
    )
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


class _Gateway(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_at: int
    uploads: dict[str, dict[int, bytes]]
    numbers = count(1)

    def do_PUT(self) -> None:
        body, query = self._body(), self._query()
        if "partNumber" in query:
            self.uploads[query["uploadId"]][int(query["partNumber"])] = body
            self._reply(200, {"ETag": f'"{query["partNumber"]}"'}, b"")
            return
        status, answer = self._upload(body)
        if status != 200:
            self._reply(status, {}, json.dumps(answer).encode())
            return
        self._reply(200, {"ETag": f'"{answer["etag"]}"', "x-goog-generation": str(answer["generation"])}, b"")

    def do_POST(self) -> None:
        self._body()
        query = self._query()
        if "uploads" in query:
            number = str(next(self.numbers))
            self.uploads[number] = {}
            self._reply_xml("InitiateMultipartUploadResult", f"<UploadId>{number}</UploadId>")
            return
        parts = self.uploads.pop(query["uploadId"])
        status, answer = self._upload(b"".join(parts[number] for number in sorted(parts)))
        if status != 200:
            self._reply(status, {}, b"")
            return
        self._reply_xml("CompleteMultipartUploadResult", f"<ETag>{answer['etag']}</ETag>")

    def do_GET(self) -> None:
        self._forward()

    def do_HEAD(self) -> None:
        self._forward()

    def do_DELETE(self) -> None:
        query = self._query()
        if "uploadId" in query:
            self.uploads.pop(query["uploadId"], None)
            self._reply(204, {}, b"")
            return
        self._forward()

    def log_message(self, format: str, *args: object) -> None:
        return

    def _upload(self, body: bytes) -> tuple[int, dict[str, object]]:
        bucket, _, name = unquote(urlsplit(self.path).path).lstrip("/").partition("/")
        target = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}"
        match = self.headers.get("x-goog-if-generation-match")
        if match is not None:
            target += f"&ifGenerationMatch={match}"
        status, _, answer = self._ask("POST", target, {"Content-Type": "application/octet-stream"}, body)
        return status, json.loads(answer or b"{}")

    def _forward(self) -> None:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in {"host", *_HOP_HEADERS}}
        status, answered, body = self._ask(self.command, self.path, headers, None)
        self._reply(status, answered, body)

    def _ask(
        self, method: str, target: str, headers: dict[str, str], body: bytes | None
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server_at, timeout=30)
        try:
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            kept = {k: v for k, v in response.getheaders() if k.lower() not in _HOP_HEADERS}
            if method == "HEAD" and (length := response.getheader("Content-Length")) is not None:
                kept["Content-Length"] = length
            return response.status, kept, response.read()
        finally:
            connection.close()

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _query(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.path).query, keep_blank_values=True).items()}

    def _reply_xml(self, element: str, inner: str) -> None:
        self._reply(200, {"Content-Type": "application/xml"}, f"<{element}>{inner}</{element}>".encode())

    def _reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
