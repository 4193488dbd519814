"""`edlz doctor`: what it says of machines, that it ends in time, and that no secret is in it."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from edlz.client.doctor.examination import CHECKS, examine, to_correct
from edlz.client.doctor.machine import check_home, judged_disk, judged_files, judged_memory
from edlz.client.doctor.page import doctor_lines, doctor_object
from edlz.client.doctor.software import check_kernels, check_packages, check_zoo, environment_of, versions
from edlz.client.screen.checks import Check
from edlz.client.screen.spans import plain
from edlz.services.errors import ConfigError
from edlz.services.redaction import without_passwords

GB = 1_000_000_000


@pytest.mark.parametrize(
    ("soft", "hard", "mark"),
    [(1024, -1, "ok"), (256, 4096, "ok"), (256, 1023, "warn"), (64, 64, "no"), (255, 255, "no")],
)
def test_what_counts_is_the_limit_of_open_files_that_a_service_can_raise_its_own_to(
    soft: int, hard: int, mark: str
) -> None:
    assert judged_files(soft, hard).mark == mark


@pytest.mark.parametrize(("free", "mark"), [(5 * GB, "ok"), (GB, "warn"), (GB // 10, "no")])
def test_a_disk_that_is_nearly_full(free: int, mark: str) -> None:
    assert judged_disk(Path("/data"), free).mark == mark


def test_memory_is_what_this_container_may_have() -> None:
    assert judged_memory(8 * GB, 4 * GB, 8 * GB).text == "4.0 GB of 8.0 GB free"
    assert judged_memory(8 * GB, 4 * GB, GB).mark == "warn"
    assert "this container may have 1.0 GB" in judged_memory(8 * GB, 4 * GB, GB).text


def test_a_home_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "file" / "home"))
    assert check_home().mark == "no"
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "new" / "home"))
    assert (check_home().mark, check_home().text.partition(": ")[2]) == ("ok", "not there yet")
    assert not (tmp_path / "new").exists()


def test_what_is_installed_here_fits() -> None:
    assert check_packages().mark == "ok"
    assert check_kernels().text.startswith("compiled, ")
    assert check_zoo().mark == "ok"


def test_a_check_that_hangs_is_left_behind_and_one_that_fails_is_told() -> None:
    never = threading.Event()

    def hangs() -> Check:
        never.wait()
        raise AssertionError

    def refuses() -> Check:
        raise ConfigError("tcp://me:hidden@host is wrong", "another one")

    def has_a_bug() -> list[Check]:
        raise KeyError("x")

    fine = Check("ok", "fine", "all well")
    checks = {"slow": hangs, "wrong": refuses, "odd": has_a_bug, "fine": lambda: fine}
    found = examine(checks, limit_s=0.2)
    never.set()
    assert [(check.mark, check.about) for check in found] == [
        ("no", "slow"),
        ("no", "wrong"),
        ("warn", "odd"),
        ("ok", "fine"),
    ]
    assert found[1].text == "tcp://…@host is wrong"
    assert [check.about for check in to_correct(found)] == ["slow", "wrong", "odd"]


def test_the_page_ends_with_what_to_correct() -> None:
    checks = [
        Check("ok", "disk", "much"),
        Check("warn", "memory", "little", "buy some"),
        Check("no", "home", "gone", "find it"),
    ]
    shown = plain(doctor_lines(versions(), checks, to_correct(checks), {"CI": "1"}))
    assert shown.endswith(
        "To correct:\n  home: gone\n      help: find it\n  memory: little\n      help: buy some\n"
    )
    assert doctor_object(versions(), checks, to_correct(checks), {})["to_correct"] == ["home", "memory"]
    assert plain(doctor_lines(versions(), checks[:1], [], {})).endswith("Nothing to correct.\n")


def test_passwords_are_left_out_of_addresses() -> None:
    for secret in (
        "http://user:hid/den@proxy:3128",
        "me:hidden@proxy:3128",
        "tcp://hidden@h",
        "https://h/x?a=1&access_token=hidden",
        'at "tcp://a:hidden@h:1": refused',
    ):
        assert "hid" not in without_passwords(secret), secret
    for plain_text in ("http://host:1/x", "12:30 at night", "C:\\x", "/home/me/.kube/config"):
        assert without_passwords(plain_text) == plain_text


def test_the_environment_tells_no_secret() -> None:
    told = environment_of(
        {
            "EDLZ_ENVS": "TOKEN=hidden",
            "EDLZ_NUM_WORKERS": "3",
            "EDLZ_UNKNOWN": "hidden",
            "HTTPS_PROXY": "http://me:hidden@proxy",
            "TF_VAR_password": "hidden",
            "AWS_SECRET_ACCESS_KEY": "hidden",
        }
    )
    assert told == {
        "EDLZ_ENVS": "(set)",
        "EDLZ_NUM_WORKERS": "3",
        "EDLZ_UNKNOWN": "(set)",
        "HTTPS_PROXY": "http://…@proxy",
    }


def test_three_troubles_of_a_machine_are_all_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cluster = {"server": "https://127.0.0.1:9"}  # a port where nobody listens
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me"}}],
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "me", "user": {"token": "hidden"}}],
    }
    (tmp_path / "config").write_text(json.dumps(kubeconfig))
    troubles = {
        "EDLZ_HOME": str(tmp_path / "file" / "home"),
        "KUBECONFIG": str(tmp_path / "config"),
        "EDLZ_ENVS": "PASSWORD=hidden",
        "DOCKER_HOST": "tcp://me:hidden@127.0.0.1:9",
    }
    command = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", sys.executable, "-m", "edlz.client", "doctor"]
    done = subprocess.run(command, env={**os.environ, **troubles}, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "")
    seen, _, wrong = done.stdout.partition("To correct:\n")
    assert [about for about in CHECKS if about not in seen] == ["ulimit -v"]
    for words in ("  open files: a process may have 64", "  EDLZ_HOME: ", "  cluster: the cluster at"):
        assert words in wrong
    assert "EDLZ_ENVS=(set)" in seen
    assert "hidden" not in done.stdout
