"""Masters that cannot say a word on their pods: why reaches whoever asks all the same."""

import asyncio
import io
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edlz.client.cli import main
from edlz.client.cluster import submission
from edlz.k8s.cluster import master_trouble
from edlz.k8s.cluster.api import Cluster
from edlz.k8s.cluster.api_errors import NotPermitted
from edlz.k8s.cluster.master_trouble import check_rights, trouble_in
from edlz.k8s.master import OwnPod, run_master
from edlz.k8s.pods.pod_inventory import PodInventory
from edlz.k8s.pods.pod_watch import PodWatch
from edlz.services.configuration.job_config import JobConfig
from edlz.services.process.logs import configure_logging
from edlz.services.process.runtime import Stop
from edlz.services.protocol.job_status import EventView, JobStatus
from tests.command_logging import logging_restored
from tests.k8s.any_cluster import wait_for
from tests.k8s.played import PlayedCluster, played_cluster
from tests.k8s.server.access import User
from tests.k8s.server.pod_logs import ListedLog

pytest.importorskip("aiohttp")
pytest.importorskip("kubernetes")

ACCOUNT = User("system:serviceaccount:default:default", ("system:serviceaccounts", "system:authenticated"))
REFUSAL = 'service account "default" may not list, watch, patch pods in "default"'
POD = "elasticdl-j-master"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedCluster]:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("edlz.client.images.daemon.look_up", lambda image, address: None)  # no daemon here
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(master_trouble, "POLL_S", 0.01)
    with logging_restored(), played_cluster(tmp_path / "kubeconfig") as played:
        played.add_node()
        yield played


def as_account(cluster: PlayedCluster, folder: Path) -> None:
    cluster.server.write_kubeconfig(folder / "kubeconfig", ACCOUNT, "default")


def test_a_master_without_rights_ends_and_says_which(cluster: PlayedCluster, tmp_path: Path) -> None:
    as_account(cluster, tmp_path)
    config = JobConfig(job_name="j", job_dir=str(tmp_path / "job"), endpoint=f"ipc://{tmp_path}/m")
    running = run_master(config, OwnPod(POD, "u", "127.0.0.1"), Stop())
    with pytest.raises(NotPermitted) as caught:
        asyncio.run(asyncio.wait_for(running, 30.0))
    assert caught.value.message == REFUSAL
    assert caught.value.help.startswith("kubectl apply -n default -f ")
    assert caught.value.exit_code == 5


def test_rights_that_come_a_moment_later_count(cluster: PlayedCluster, tmp_path: Path) -> None:
    as_account(cluster, tmp_path)

    async def run() -> None:
        async with await Cluster.connect(JobConfig()) as connection:
            checking = asyncio.create_task(check_rights(connection, patience_s=60.0))
            asked = cluster.server.requests
            await asyncio.to_thread(wait_for, lambda: len(asked) >= 6, "it has asked, and was refused")
            assert not checking.done()
            await asyncio.to_thread(cluster.grant)
            await checking

    asyncio.run(run())


def test_a_server_that_does_not_answer_ends_no_master(
    cluster: PlayedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with await Cluster.connect(JobConfig(), patience_s=0.1) as connection:
            cluster.server.down()
            await check_rights(connection)
            cluster.server.up()

    asyncio.run(run())
    assert "the master's rights could not be seen: the cluster at http://127.0.0.1:" in caplog.text


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_what_a_master_logs_of_its_cluster_is_found_in_its_log(
    cluster: PlayedCluster, log_format: str
) -> None:
    log = io.StringIO()
    configure_logging("INFO", log_format, stream=log)

    async def run() -> None:
        async with await Cluster.connect(JobConfig()) as connection:
            watch = PodWatch(connection, "a=b", PodInventory("u", "p"), lambda pods: None)
            cluster.server.down()
            watching = asyncio.create_task(watch.run())
            await asyncio.to_thread(wait_for, lambda: watch.trouble, "it has failed")
            watching.cancel()
            cluster.server.up()

    asyncio.run(run())
    found = trouble_in(log.getvalue().splitlines())
    assert found.startswith("the cluster at http://127.0.0.1:")
    assert "cannot be reached: " in found
    assert trouble_in(["[2026] a line", "{not json", ""]) == ""


def test_the_commands_say_what_only_the_log_of_the_master_does(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "the cluster at https://10.96.0.1:443 cannot be reached: it does not answer; kubectl get networkpolicy"
    line = f"[2026-11-28 19:00:00,000] [WARNING] [pod_watch.py:63:run] {master_trouble.UNSEEN}: {why}\n"
    cluster.grant()
    cluster.is_mute = True
    cluster.logs[POD] = ListedLog([(time.time(), line.encode())])
    monkeypatch.setattr(submission, "WORD_S", 0.2)
    monkeypatch.setattr(submission, "POLL_S", 0.05)
    flags = ["--model_def=mnist.mnist_functional_api.custom_model", "--training_data=/d", "--image_name=e:m"]
    assert main(["train", *flags, "--job_name=j"]) == 0
    note = f"the master runs, but cannot say a word: {why}"
    assert note in capsys.readouterr().out
    assert main(["status", "j"]) == 0
    shown = capsys.readouterr().out
    assert note in shown
    assert "no answer yet" not in shown
    cluster.logs[POD] = ListedLog()
    assert main(["status", "j"]) == 0
    assert "the master starts: no answer yet" in capsys.readouterr().out


@pytest.mark.parametrize(("age_s", "is_told"), [(330.0, True), (5.0, False)])
def test_a_master_that_was_cut_off_later_is_told_with_its_old_figures(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str], age_s: float, is_told: bool
) -> None:
    line = (
        f"[2026-11-28 19:00:00,000] [WARNING] [pod_supervisor.py:63:run] {master_trouble.UNTOLD}: no answer\n"
    )
    cluster.add_pod("j", "master")
    cluster.run(POD)
    then = time.time() - age_s
    said = JobStatus(
        name="j",
        state="Training",
        mode="sync",
        slots=1,
        started_at=then - 60.0,
        now=then,
        epochs=1,
        version=7,
    )
    cluster.say("j", said)
    cluster.logs[POD] = ListedLog([(time.time(), line.encode())])
    assert main(["status", "j", "-n", "default"]) == 0
    shown = capsys.readouterr().out
    note = "these figures are old, as the master cannot write new ones: no answer"
    assert (note in shown) == is_told
    assert "v7" in shown
    cluster.logs[POD] = ListedLog()
    for command in (["status", "j", "-n", "default"], ["ls", "-n", "default"]):  # a list reads no logs
        assert main(command) == 0
        shown = capsys.readouterr().out
        assert ("these figures are 5m old: the master writes no new ones" in shown) == is_told


@pytest.mark.parametrize("ahead_s", [-170.0, 170.0])
def test_ages_are_those_of_the_cluster_whatever_the_clock_here_says(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str], ahead_s: float
) -> None:
    cluster.server.store.clock = lambda: time.time() + ahead_s
    cluster.add_pod("j", "master")
    cluster.run(POD)
    there = time.time() + ahead_s
    cluster.say(
        "j",
        JobStatus(
            name="j",
            state="Training",
            mode="sync",
            slots=1,
            started_at=there - 630.0,
            now=there - 5.0,
            events=(EventView(seq=1, at=there - 330.0, kind="job", text="it began"),),
        ),
    )
    assert main(["status", "j", "-n", "default"]) == 0
    shown = capsys.readouterr().out
    assert "figures are" not in shown
    assert "k8s/default, 10m" in shown
    assert "5m   it began" in shown
    assert main(["ls", "-n", "default"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("j ")]
    assert "10m" in row.split()
