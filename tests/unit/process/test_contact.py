"""Services that do not wait for ever for a master that is gone."""

import re
import socket
import subprocess
import sys

import pytest

from edlz.k8s.cluster.names import Owner
from edlz.k8s.objects.pods import ORPHAN_S, service_pod, settings_in_pods
from edlz.services.configuration.job_config import JobConfig
from edlz.services.process.contact import LONGEST_STEP_S, Contact

LIMIT_S = 10.0


def ticked(contact: Contact, first_s: int, last_s: int) -> str:
    """Let the seconds pass; return what the contact says in the end."""
    errors = [contact.on_tick(float(second)) for second in range(first_s, last_s + 1)]
    return errors[-1].message if errors[-1] else ""


def test_a_service_ends_when_nothing_is_heard_for_long() -> None:
    contact = Contact("tcp://master:1", LIMIT_S)
    assert ticked(contact, 0, 9) == ""
    assert ticked(contact, 10, 10) == "the master at tcp://master:1 does not answer at all, for 10s now"


def test_each_word_of_the_master_gives_it_as_long_again() -> None:
    contact = Contact("tcp://master:1", LIMIT_S)
    for round_s in range(0, 90, 9):
        assert ticked(contact, round_s, round_s + 8) == ""
        contact.on_heard()
    assert "does not answer any more" in ticked(contact, 90, 110)


def test_a_service_that_was_frozen_listens_before_it_gives_up() -> None:
    contact = Contact("tcp://master:1", LIMIT_S)
    contact.on_tick(0.0)
    assert contact.on_tick(1_000.0) is None
    assert ticked(contact, 1_001, 1_000 + int(LIMIT_S - LONGEST_STEP_S) - 1) == ""


def test_without_a_limit_it_waits_for_ever() -> None:
    assert ticked(Contact("tcp://master:1", 0.0), 0, 10_000) == ""


@pytest.mark.parametrize("role", ["ps", "worker"])
def test_a_process_that_never_reaches_its_master_says_so_and_ends(role: str) -> None:
    with socket.socket() as taken:  # it is bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, "-m", f"edlz.services.{role}", f"--{role}_id=0", "--orphan_secs=0.5"]
        command += [f"--master_addr={address}", *(["--port=0"] if role == "ps" else [])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 5, done.stderr
    assert re.search(
        rf"error: the master at tcp://{address} does not answer at all, for \d+s now", done.stderr
    )


@pytest.mark.parametrize(("given", "wanted_s"), [({}, ORPHAN_S), ({"orphan_secs": 30.0}, 30.0)])
def test_pods_have_a_limit(given: dict[str, float], wanted_s: float) -> None:
    config = JobConfig(job_name="j", model_def="m.f", given=frozenset(given), **given)
    in_pods = settings_in_pods(config, "i")
    assert in_pods.orphan_secs == wanted_s
    for name in ("ps-0", "worker-0"):
        pod = service_pod(in_pods, name, owner=Owner("m", "u"), master_addr="a:1")
        assert f"--orphan_secs={wanted_s:g}" in pod.spec.containers[0].command


def test_processes_of_this_machine_have_none() -> None:
    assert JobConfig(job_name="j", model_def="m.f").orphan_secs == 0.0
