"""What is kept of pods that are gone: how much, and in which form."""

import base64
import zlib
from pathlib import Path

import pytest

from edlz.k8s.pods.log_folder import MOST_LOGS, LogFolder
from edlz.k8s.pods.pod_log import LINES, LOG_BYTES, PodLog, read_config_map

OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "elasticdl-j-master", "uid": "m"}
AT = 1_777_885_923.0
TIME = "2026-05-04T09:12:00.000000000Z"


def test_the_last_lines_are_kept_and_how_it_ended() -> None:
    log = PodLog.of("worker-3", "uid", AT, [f"{TIME} {n}" for n in range(LINES + 7)], "preempted")
    first, *_, last = log.lines()
    assert first == f"{TIME} 7"
    assert last == "2026-05-04T09:12:03Z --- ended: preempted"
    assert len(log.lines()) == LINES + 1


def test_long_lines_cost_old_ones() -> None:
    log = PodLog.of("worker-3", "uid", AT, [f"{n} {'é' * 10_000}" for n in range(LINES)], "exit code 1")
    assert len(log.text.encode()) <= LOG_BYTES
    assert [line.split()[0] for line in log.lines()[:-1]] == [str(n) for n in range(LINES - 10, LINES)][1:]
    assert len(PodLog.of("worker-3", "uid", AT, ["x" * 10**6], "exit code 1").lines()) == 2


def test_an_object_tells_the_same() -> None:
    log = PodLog.of("ps-0", "0123456789", AT, [f"{TIME} größer"], "exit code 1")
    packed = log.config_map("j", "elasticdl-j-log-ps-0", OWNER)
    assert packed["metadata"]["ownerReferences"] == [OWNER]
    found = read_config_map(packed)
    assert found is not None
    assert (found.name, found.uid, found.text) == (log.name, log.uid, log.text)


@pytest.mark.parametrize("packed", [None, 7, "?", "bm8gbG9n"])
def test_what_is_no_log_is_passed_over(packed: object) -> None:
    found = {"metadata": {"annotations": {"edlz.io/pod": "ps-0"}}, "binaryData": {"log.z": packed}}
    assert read_config_map(found) is None
    assert read_config_map({}) is None
    assert read_config_map({"metadata": None, "binaryData": None}) is None


def test_a_bomb_is_not_unpacked_whole() -> None:
    packed = base64.b64encode(zlib.compress(bytes(10**8))).decode()
    found = read_config_map(
        {"metadata": {"annotations": {"edlz.io/pod": "ps-0"}}, "binaryData": {"log.z": packed}}
    )
    assert found is not None
    assert len(found.text) <= 2 * LOG_BYTES


def test_the_newest_fifty_stay_and_strangers_are_left_alone(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path / "pods")
    assert folder.logs() == []
    gone = []
    for number in range(MOST_LOGS + 3):
        log = PodLog.of(f"worker-{number}", f"{number:08d}-more", AT + number, ["x"], "exit code 0")
        gone += folder.keep(log)
        (tmp_path / "pods" / "notes.txt").touch()
    assert [log.name for log in gone] == ["worker-0", "worker-1", "worker-2"]
    assert [log.name for log in folder.logs()] == [f"worker-{n}" for n in range(3, MOST_LOGS + 3)]
    assert folder.logs()[0].short_name == "log-worker-3-00000003", "what its object was called"
    assert (tmp_path / "pods" / "notes.txt").exists()


def test_a_pod_is_kept_once(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path)
    for at in (AT, AT + 60):  # by a master, and by its next life
        folder.keep(PodLog.of("worker-1", "0123456789", at, ["x"], "exit code 1"))
    folder.keep(PodLog.of("worker-11", "0123456789", AT, ["x"], "exit code 1"))
    assert [(log.name, log.at) for log in folder.logs()] == [("worker-1", AT), ("worker-11", AT)]


def test_ten_megabytes_are_kept_in_all(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path)
    for number in range(MOST_LOGS):
        folder.keep(PodLog.of(f"worker-{number}", f"{number:08d}", AT + number, ["x" * 9_000] * 30, "gone"))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 10_000_000
