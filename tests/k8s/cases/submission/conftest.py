"""A home with a kubeconfig, and a cluster that plays the master of what is submitted to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from edlz.client.cluster import job, submission
from tests.k8s.played import PlayedCluster, played_cluster, status


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("edlz.client.images.daemon.look_up", lambda image, address: None)  # no daemon here
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    for name in ("FORCE_COLOR", "EDLZ_DEBUG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    for module in (job, submission):
        monkeypatch.setattr(module, "POLL_S", 0.05)
    return tmp_path / "home"


@pytest.fixture
def cluster(home: Path) -> Iterator[PlayedCluster]:
    with played_cluster(home.parent / "kubeconfig", "research") as played:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "research"}}
        played.store.create("namespaces", body)
        played.add_node()
        played.grant("research")
        played.first_word = status("Starting")
        yield played
