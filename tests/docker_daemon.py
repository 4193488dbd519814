"""A stand-in for a Docker daemon: HTTP on loopback, as the Docker SDK speaks it.

It keeps what it was sent, and answers with the streams that a test gives it.
"""

import contextlib
import io
import json
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

__all__ = ["FakeDaemon", "fake_daemon"]

Stream = Sequence[Mapping[str, Any]]
BUILT: Stream = (
    {"stream": "Step 1/2 : FROM edlz:0.1.0"},
    {"stream": "\n"},
    {"stream": " ---> 4654ea4242fa\n"},
    {"stream": "Step 2/2 : COPY model_zoo /model_zoo\n"},
    {"aux": {"ID": "sha256:1234"}},
    {"stream": "Successfully built 1234\n"},
)


@dataclass
class FakeDaemon:
    """What the daemon has, what it answers, and what it was asked.

    Attributes
    ----------
    architecture : of the images that it builds
    images : by name, as `docker inspect` shows them
    build_stream, push_stream : what a build or a push answers
    build_status : the HTTP status of it
    builds : for each, its parameters and the files that it was sent
    pushes : the names
    on_built, on_pushed : are told the name
    """

    url: str = ""
    architecture: str = "amd64"
    images: dict[str, dict[str, Any]] = field(default_factory=dict)
    build_stream: Stream = BUILT
    push_stream: Stream = ({"status": "The push refers to repository [x]"},)
    build_status: int = 200
    builds: list[tuple[dict[str, str], dict[str, str]]] = field(default_factory=list)
    pushes: list[str] = field(default_factory=list)
    on_built: Callable[[str], None] = lambda name: None
    on_pushed: Callable[[str], None] = lambda name: None

    def add(self, name: str, architecture: str = "amd64") -> None:
        """Let an image be there."""
        self.images[name] = {
            "Id": "sha256:1",
            "Size": 1_200_000_000,
            "Os": "linux",
            "Architecture": architecture,
        }

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        """Return status and body of an answer."""
        parts = urlsplit(target)
        path = (
            unquote(parts.path).split("/", 2)[2] if parts.path.startswith("/v1") else parts.path.lstrip("/")
        )
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if path == "_ping":
            return 200, b"OK"
        if path == "version":
            return _json({"ApiVersion": "1.41", "MinAPIVersion": "1.12", "Os": "linux", "Arch": "amd64"})
        if path == "images/json":
            return _json([{"RepoTags": [name]} for name in self.images])
        if path.startswith("images/") and path.endswith("/json"):
            found = self.images.get(path.removeprefix("images/").removesuffix("/json"))
            return _json(found) if found else _json({"message": f"No such image: {path}"}, 404)
        if method == "POST" and path == "build":
            self.builds.append((query, _files(body)))
            if self.build_status != 200:
                return _json({"message": self.build_stream[0]["message"]}, self.build_status)
            self.add(query["t"], self.architecture)
            self.on_built(query["t"])
            return 200, _stream(self.build_stream)
        if method == "POST" and path.endswith("/push"):
            name = path.removeprefix("images/").removesuffix("/push")
            self.pushes.append(f"{name}:{query.get('tag', '')}")
            self.on_pushed(self.pushes[-1])
            return 200, _stream(self.push_stream)
        return _json({"message": f"page not found: {method} {path}"}, 404)


@contextlib.contextmanager
def fake_daemon() -> Iterator[FakeDaemon]:
    """Run a daemon on a free port of loopback."""
    daemon = FakeDaemon()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            status, body = daemon.answer(self.command, self.path, self._body())
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            if status == 200 and self.command == "POST":  # a stream: the SDK reads it record by record
                self.send_header("Transfer-Encoding", "chunked")
                body = (
                    b"".join(b"%x\r\n%b\r\n" % (len(line), line) for line in body.splitlines(True))
                    + b"0\r\n\r\n"
                )
            else:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_HEAD = _answer  # noqa: N815

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") == "chunked":
                pieces = []
                while size := int(self.rfile.readline(), 16):
                    pieces.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(pieces)
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(
            target=server.serve_forever, name="docker-daemon", kwargs={"poll_interval": 0.02}
        )
        thread.start()
        daemon.url = f"tcp://127.0.0.1:{server.server_address[1]}"
        try:
            yield daemon
        finally:
            server.shutdown()
            thread.join()


def _json(value: Any, status: int = 200) -> tuple[int, bytes]:
    return status, json.dumps(value).encode()


def _stream(records: Stream) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\r\n" for record in records)


def _files(body: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
        return {
            entry.name: tar.extractfile(entry).read().decode(errors="replace")  # type: ignore[union-attr]
            for entry in tar.getmembers()
            if entry.isfile()
        }
