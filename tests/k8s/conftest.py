"""The cluster of the tests: emulated, or a real one with K8S_TESTS=True and a kubeconfig in KUBECONFIG.

`K8S_TESTS=False pytest tests` leaves out all tests that need a cluster.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.k8s.any_cluster import AnyCluster
from tests.k8s.cluster import TestCluster


def _wanted() -> str:
    """Return which cluster is wanted: emulated or real; skip the test if none is."""
    if os.environ.get("K8S_TESTS") == "False":
        pytest.skip("K8S_TESTS=False")
    is_real = os.environ.get("K8S_TESTS") == "True" and os.environ.get("KUBECONFIG")
    return "real" if is_real else "emulated"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[AnyCluster]:
    """A namespace with nothing in it; of a cluster with two nodes of 4 cores each, if it is emulated."""
    if _wanted() == "real":
        from tests.k8s.real_cluster import RealCluster

        with RealCluster(Path(os.environ["KUBECONFIG"]), tmp_path) as real:
            yield real
        return
    with TestCluster(tmp_path / "cluster") as emulated:
        for name in ("node-a", "node-b"):
            emulated.add_node(name)
        yield emulated


@pytest.fixture
def emulated_cluster(tmp_path: Path) -> Iterator[TestCluster]:
    """An emulated cluster without nodes, for tests that need power over nodes, containers or faults."""
    if _wanted() == "real":
        pytest.skip("K8S_TESTS=True: only tests that a real cluster can pass")
    with TestCluster(tmp_path / "cluster") as emulated:
        yield emulated
