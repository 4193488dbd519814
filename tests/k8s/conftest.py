"""The cluster of the tests.

`K8S_TESTS=False pytest tests` leaves out all tests that need a cluster.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.k8s.cluster import TestCluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TestCluster]:
    """A cluster with nothing in it: two nodes with 4 cores each."""
    wanted = os.environ.get("K8S_TESTS", "")
    if wanted == "False":
        pytest.skip("K8S_TESTS=False")
    with TestCluster(tmp_path / "cluster") as emulated:
        for name in ("node-a", "node-b"):
            emulated.add_node(name)
        yield emulated


@pytest.fixture
def emulated_cluster(tmp_path: Path) -> Iterator[TestCluster]:
    """An emulated cluster without nodes, for tests that need power over nodes, containers or faults."""
    if os.environ.get("K8S_TESTS", "") == "False":
        pytest.skip("K8S_TESTS=False")
    with TestCluster(tmp_path / "cluster") as emulated:
        yield emulated
