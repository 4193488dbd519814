"""`edlz open` on a job of a cluster: its page comes through the API server, as long as the job runs."""

import asyncio
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edlz.client.cli import main
from edlz.client.cluster import job
from edlz.services.master.page.status_page import StatusPage, bound
from tests.builders import settings
from tests.command_logging import logging_restored
from tests.k8s.any_cluster import wait_for
from tests.k8s.played import PlayedCluster, played_cluster, status
from tests.k8s.server.access import User
from tests.shown_pages import content

pytest.importorskip("aiohttp")
pytest.importorskip("kubernetes")

MASTER = "elasticdl-mnist-master"
VIEWER = User("ann")
LOOKING = {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["get", "list"]}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedCluster]:
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(job, "POLL_S", 0.05)
    with logging_restored(), played_cluster(tmp_path / "kubeconfig", "default") as played:
        played.add_node()
        played.add_pod("mnist", "master")
        played.run(MASTER)
        yield played


@contextmanager
def served_page() -> Iterator[str]:
    """Serve a page on the loopback, which is that of the pods here too; yield its address."""
    listening = bound(settings(status_port="0"))
    assert listening is not None
    page, loop = StatusPage(listening, content), asyncio.new_event_loop()
    serving = loop.create_task(page.run(), name="page")

    def serve() -> None:
        loop.run_until_complete(asyncio.gather(serving, return_exceptions=True))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield page.address
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join()
        page.close()
        loop.close()


def test_the_page_of_a_pod_is_open_as_long_as_the_job_runs(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    codes: list[int] = []
    with served_page() as address:
        cluster.say("mnist", status(page=address))
        opened = threading.Thread(
            target=lambda: codes.append(main(["open", "mnist", "-n", "default", "--print"]))
        )
        opened.start()
        printed: list[str] = []

        def is_told() -> bool:
            printed.extend(capsys.readouterr().out.split())
            return bool(printed) or not opened.is_alive()

        wait_for(is_told, "the page's address")
        (here,) = printed
        assert here != address
        for path, begin in (("/", b"<!doctype html>"), ("/api/status", b'{"api":1'), ("/healthz", b"ok")):
            with urllib.request.urlopen(here + path, timeout=30) as answer:
                assert answer.read().startswith(begin)
        assert opened.is_alive()
        cluster.say("mnist", status("Succeeded"))
        cluster.end(MASTER)
        opened.join(30)
    assert codes == [0]
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(here, timeout=30)


def test_without_the_right_to_reach_pods_it_says_which_one(
    cluster: PlayedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.say("mnist", status(page="http://localhost:1"))
    about = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "looking"}}
    cluster.store.create("roles", {**about, "kind": "Role", "rules": [LOOKING]}, "default")
    whose = {"kind": "User", "name": VIEWER.name, "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "Role", "name": "looking", "apiGroup": "rbac.authorization.k8s.io"}
    cluster.store.create(
        "rolebindings", {**about, "kind": "RoleBinding", "roleRef": role, "subjects": [whose]}, "default"
    )
    cluster.server.write_kubeconfig(tmp_path / "kubeconfig", VIEWER, "default")
    assert main(["open", "mnist", "-n", "default", "--print"]) == 5
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f'error: you may not reach the ports of pod {MASTER} in "default"' in printed.err
    assert 'help: ask an administrator for: get, create pods/portforward in "default"' in printed.err


def test_of_a_job_that_has_ended_it_says_where_the_report_is(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.say("mnist", status("Succeeded"))
    cluster.end(MASTER)
    assert main(["open", "mnist", "-n", "default", "--print"]) == 2
    assert 'job "mnist -n default" is not running; its report went with its pod' in capsys.readouterr().err


def test_of_a_job_without_a_page_it_says_so(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.say("mnist", status())
    assert main(["open", "mnist", "-n", "default", "--print"]) == 2
    assert "has no status page now: it has just begun, or has --status_port=none" in capsys.readouterr().err
