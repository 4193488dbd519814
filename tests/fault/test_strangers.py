"""A job with keys trains while strangers connect to its services: it does not notice."""

import contextlib
import re
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from edlz.services.process.descriptors import raise_descriptor_limit
from edlz.services.transport.keys import make_job_keys, write_keys
from tests.fault import tiny_job
from tests.fault.tiny_job import MODES
from tests.tcp_job import TcpJob, connections_of

pytestmark = pytest.mark.fault

SILENT = 2_000  # at each service
DECLARED = (
    "connection refused: peer=",
    "connections cut off that had not finished a handshake",
    "feed() takes longer than the model",  # a busy machine, and a model of next to nothing
)
COMPLAINT = re.compile(r"\[[^]]*\] \[(WARNING|ERROR|CRITICAL)\] |Traceback|error: ")
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01"
CURVE = GREETING + b"CURVE".ljust(20, b"\0") + bytes(32)
SCANS = {
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a TLS hello": bytes.fromhex("16030100c8010000c40303") + bytes(range(198)),
    "an SSH banner": b"SSH-2.0-OpenSSH_9.6\r\n",
    "no mechanism": GREETING + b"NULL".ljust(20, b"\0") + bytes(32) + b"\x04\x19\x05READY",
    "another mechanism": GREETING + b"PLAIN".ljust(20, b"\0") + bytes(32) + b"\x04\x08\x05HELLO\x00\x00",
    "an old version": b"\x01\x00" * 50,
    "half a greeting": GREETING,
    "half a hello": CURVE + b"\x04\xc8\x05HELLO\x01\x00",
    "a false hello": CURVE + b"\x04\xc8\x05HELLO\x01\x00" + bytes(192),
    "a command that is claimed to be large": CURVE
    + b"\x06"
    + (1 << 20).to_bytes(8, "big")
    + b"\x05HELLO"
    + bytes(9_000),
    "a command that is claimed to be huge": CURVE + b"\x06" + (1 << 62).to_bytes(8, "big") + b"\x05HELLO",
    "noise": bytes(value * 73 % 256 for value in range(4_000)),
}


@pytest.fixture(autouse=True)
def _many_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if raise_descriptor_limit() < 4 * SILENT:
        pytest.skip(f"a process may have {before[1]} descriptors here; {4 * SILENT} are needed")
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


class Strangers:
    """Connections to a port; one that was ended is made anew."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._silent: list[socket.socket] = []
        self.made = 0

    def come(self) -> None:
        """Have as many silent connections as there should be, and every scan once."""
        self._silent = [connection for connection in self._silent if not _has_ended(connection)]
        while len(self._silent) < SILENT:
            self._silent.append(self._connect(b""))
        for data in SCANS.values():
            self._connect(data).close()

    def close(self) -> None:
        for connection in self._silent:
            connection.close()

    def _connect(self, data: bytes) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=60)
        connection.setblocking(False)
        self.made += 1
        with contextlib.suppress(OSError):  # it has been ended already
            connection.send(data)
        return connection


def _has_ended(connection: socket.socket) -> bool:
    try:
        is_over = connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        is_over = True
    if is_over:
        connection.close()
    return is_over


def test_a_job_does_not_notice_strangers(
    tmp_path: Path, small_mnist: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_keys(tmp_path / "keys", make_job_keys())
    monkeypatch.setenv("EDLZ_KEYS_DIR", str(tmp_path / "keys"))
    folder = tmp_path / "job"
    folder.mkdir()
    flags = (*tiny_job.FLAGS, MODES["sync"], "--num_epochs=30", "--recovery_snapshot_secs=1")
    with TcpJob(folder, *flags, f"--training_data={small_mnist}/train", partitions=2) as job:
        job.start(workers=2)
        job.wait_for_log("worker-0", "model built")
        job.wait_for_log("worker-1", "model built")
        job.wait_for_log("master", "Task:5 completed")
        workers = [job.processes[name].pid for name in ("worker-0", "worker-1")]
        before = [connections_of(pid) for pid in workers]
        crowds = [Strangers(job.listening_port(name)) for name in ("master", "ps-0", "ps-1")]
        try:
            done = _tasks_done(job)
            while _tasks_done(job) < done + 30:
                for crowd in crowds:
                    crowd.come()
            assert [connections_of(pid) for pid in workers] == before
        finally:
            for crowd in crowds:
                crowd.close()
        assert job.finish().state == "Succeeded"
        job.check_exactly_once()
        assert all(crowd.made > SILENT for crowd in crowds)
        for name in job.processes:
            assert [
                line for line in _complaints(job.log(name)) if not any(text in line for text in DECLARED)
            ] == []
        assert any(DECLARED[1] in line for line in _complaints(job.log("master")))
        assert " lost" not in job.log("master")


def _tasks_done(job: TcpJob) -> int:
    return len(re.findall(r"Task:\d+ completed", job.log("master")))


def _complaints(log: str) -> list[str]:
    """Return the warnings in a log and what is worse."""
    return [line for line in log.splitlines() if COMPLAINT.match(line)]
