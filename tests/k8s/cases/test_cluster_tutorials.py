"""The commands of the tutorials about clusters, as they stand there, on an emulated cluster.

What is changed: the node's `/data` is a folder of the test. Images are built by a stand-in for Docker's daemon, and
the pods find in them what it was sent.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edlz.client.images.recipe import own_base
from tests.docker_daemon import FakeDaemon, fake_daemon
from tests.k8s.any_cluster import make_claim
from tests.k8s.cluster import TestCluster
from tests.k8s.server.objects.errors import ApiError
from tests.tutorials import ROOT, Step, run, steps, write_files

pytest.importorskip("aiohttp")
pytest.importorskip("kubernetes")
pytest.importorskip("docker")
pytestmark = pytest.mark.slow

LIMIT_S = 300.0
CONTEXTS = ("minikube", "gke_lab_europe-west4_research", "lab")  # that the tutorials name


class Terminal:
    """Where a user follows a tutorial: a folder like the root of the repository, kubectl, a Docker daemon, a cluster."""

    def __init__(self, cluster: TestCluster, daemon: FakeDaemon, place: Path) -> None:
        self.cluster, self.daemon, self.place = cluster, daemon, place
        self.variables = {
            "KUBECONFIG": str(cluster.kubeconfig),
            "KUBECACHEDIR": str(place / "kube-cache"),
            "DOCKER_HOST": daemon.url,
            "PROJECT_ID": "lab",
            "PYTHONPATH": os.pathsep.join((os.environ.get("PYTHONPATH", ""), str(ROOT))),
        }
        self.changes: dict[str, str] = {}
        shutil.copytree(ROOT / "model_zoo", place / "model_zoo", ignore=shutil.ignore_patterns("__pycache__"))
        for folder in ("k8s", "scripts"):
            (place / folder).symlink_to(ROOT / folder)
        if shutil.which("kubectl") is None or os.environ.get("EDLZ_TEST_KUBECTL") == "stand-in":
            kubectl = place / "bin" / "kubectl"
            kubectl.parent.mkdir()
            kubectl.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.k8s.kubectl "$@"\n')
            kubectl.chmod(0o755)

    def command(self, step: Step) -> str:
        text = step.command
        for shown, meant in self.changes.items():
            text = text.replace(shown, meant)
        return text

    def run(self, command: str) -> str:
        return run(command, self.place, self.variables)

    def do(self, step: Step) -> str:
        """Run a command, compare what it prints with what the tutorial shows, and return it."""
        printed = self.run(self.command(step))
        print(f"$ {step.command}{printed}")
        step.check(printed, but_for=CONTEXTS)
        return printed

    def image_from(self, name: str, *, is_local: bool = False) -> None:
        """Let the nodes have an image with what the daemon was sent for it."""
        _, files = self.daemon.builds[-1]
        content = self.place.parent / "images" / name.replace("/", "_")
        for file, text in files.items():
            (content / file).parent.mkdir(parents=True, exist_ok=True)
            (content / file).write_text(text)
        contents = {f"/{one}": content / one for one in ("model_zoo", "model") if (content / one).is_dir()}
        self.cluster.images.add(name, contents=contents, is_local=is_local)

    # -- what a user waits for before the next step

    def wait_for_phases(self, job: str, count: int) -> None:
        labels = f"elasticdl_job_name={job}"

        def running() -> bool:
            phases = [pod["status"].get("phase") for pod in self.cluster.list("pods", labels)]
            return phases == ["Running"] * count

        self.cluster.wait_for(running, f"{count} running pods of {job}", LIMIT_S)

    def wait_for_restart(self, pod: str) -> None:
        def restarts() -> int:
            found = self.cluster.find("pods", pod)
            containers = (found or {}).get("status", {}).get("containerStatuses") or []
            return sum(one["restartCount"] for one in containers)

        self.cluster.wait_for(restarts, f"{pod} is started again", LIMIT_S)

    def wait_for_log(self, pod: str, *texts: str) -> None:
        def found() -> bool:
            try:
                log = self.cluster.log(pod)
            except ApiError:  # there is none yet
                return False
            return all(text in log for text in texts)

        self.cluster.wait_for(found, f"{texts} in the log of {pod}", LIMIT_S)


@pytest.fixture
def terminal(emulated_cluster: TestCluster, tmp_path: Path) -> Iterator[Terminal]:
    place = tmp_path / "checkout"
    place.mkdir()
    with fake_daemon() as daemon:
        for name in (own_base(), "edlz:ci", "edlz:dev_allreduce"):
            daemon.add(name)
        yield Terminal(emulated_cluster, daemon, place)


def add_nodes(cluster: TestCluster, count: int, **facts: Any) -> None:
    for name in "abc"[:count]:
        cluster.add_node(f"node-{name}", memory="15Gi", **facts)


def add_claim(terminal: Terminal, claim: str, data: Path, folder: str) -> None:
    """Let there be a volume with the data in one of its folders."""
    terminal.cluster.create("persistentvolumeclaims", make_claim(claim))
    shutil.copytree(data, terminal.cluster.claim_folder(claim) / folder)


def test_minikube(terminal: Terminal) -> None:
    blocks = steps("minikube.md")
    add_nodes(terminal.cluster, 1)
    terminal.daemon.on_built = lambda name: terminal.image_from(name, is_local=True)
    terminal.changes["host_path=/data"] = f"host_path={terminal.place / 'data'}"
    for name in ("data", "rights", "image"):
        terminal.do(blocks[name])
    terminal.do(blocks["train"])
    terminal.wait_for_log("elasticdl-test-mnist-worker-0", "steps = 100")
    terminal.wait_for_log("elasticdl-test-mnist-master", "metrics[v=100]")
    for name in ("pods", "evaluation", "loss", "wait", "rm"):
        terminal.do(blocks[name])
    for name in ("folder", "two"):
        terminal.do(blocks[name])
    terminal.wait_for_log("elasticdl-test-mnist-two-worker-0", "steps = 20")
    for name in ("two_pods", "two_loss", "two_model"):
        terminal.do(blocks[name])


def test_minikube_without_parameter_servers(terminal: Terminal) -> None:
    blocks = steps("minikube.md")
    add_nodes(terminal.cluster, 1)
    terminal.daemon.on_built = lambda name: terminal.image_from(name, is_local=True)
    terminal.changes["host_path=/data"] = f"host_path={terminal.place / 'data'}"
    (terminal.place / "build").mkdir()
    (terminal.place / "build" / "edlz-0.1.0-py3-none-any.whl").touch()
    for name in ("data", "rights", "wheel_image", "allreduce"):
        terminal.do(blocks[name])
    terminal.wait_for_log("elasticdl-test-mnist-allreduce-worker-0", "steps = 20")
    for name in ("allreduce_pods", "allreduce_loss", "allreduce_wait"):
        terminal.do(blocks[name])


def test_gke(terminal: Terminal, small_mnist: Path) -> None:
    blocks = steps("gke.md")
    add_nodes(terminal.cluster, 3)
    start_as_in_gke(terminal, small_mnist)
    for name in ("components", "rights", "hello"):
        terminal.do(blocks[name])
    terminal.wait_for_phases("hello-world", 4)
    for name in ("hello_pods", "hello_delete"):
        terminal.do(blocks[name])
    assert terminal.cluster.list("pods") == []


def test_gke_loses_pods(terminal: Terminal, mnist_sample: Path) -> None:
    blocks = steps("gke.md")
    add_nodes(terminal.cluster, 3)
    start_as_in_gke(terminal, mnist_sample)
    for name in ("rights", "fault"):
        terminal.do(blocks[name])
    terminal.wait_for_phases("fault-tolerance", 4)
    terminal.wait_for_log("elasticdl-fault-tolerance-worker-0", "model built")
    for name in ("fault_pods", "fault_delete"):
        terminal.do(blocks[name])
    terminal.cluster.wait_for_phase("elasticdl-fault-tolerance-worker-2", "Running", timeout_s=LIMIT_S)
    terminal.do(blocks["fault_pods_again"])
    terminal.wait_for_log("elasticdl-fault-tolerance-master", "checkpoint v20 is complete")
    for name in ("master_delete", "resume", "fault_wait"):
        terminal.do(blocks[name])


def test_gke_priorities(terminal: Terminal, mnist_sample: Path) -> None:
    blocks = steps("gke.md")
    add_nodes(terminal.cluster, 3)
    start_as_in_gke(terminal, mnist_sample)
    write_files("gke.md", terminal.place)
    for name in ("rights", "classes", "low"):
        terminal.do(blocks[name])
    terminal.wait_for_phases("low-prio-job", 4)
    for name in ("low_pods", "high"):
        terminal.do(blocks[name])
    terminal.cluster.wait_for_phase("elasticdl-high-prio-job-worker-0", "Running", timeout_s=LIMIT_S)
    terminal.cluster.wait_for_phase("elasticdl-low-prio-job-worker-2", "Pending", timeout_s=LIMIT_S)
    terminal.do(blocks["both_pods"])
    terminal.do(blocks["both_wait"])


def start_as_in_gke(terminal: Terminal, data: Path) -> None:
    """Let there be the volume, the registry and the variables of that tutorial."""
    add_claim(terminal, "fileserver-claim", data, "mnist_nfs/mnist")
    terminal.daemon.on_pushed = terminal.image_from
    _, _, setting = steps("gke.md")["setting"].command.partition(" ")
    name, _, value = setting.strip().partition("=")
    terminal.variables[name] = value


def test_on_prem(terminal: Terminal, mnist_sample: Path) -> None:
    blocks = steps("on_prem.md")
    cluster = terminal.cluster
    pool = {"key": "mycluster.com/app-pool", "value": "edlz", "effect": "NoSchedule"}
    add_nodes(cluster, 2)
    cluster.namespace = "kubemaker"
    cluster.create("namespaces", {"metadata": {"name": "kubemaker"}})
    add_claim(terminal, "mnist", mnist_sample, "mnist")
    cluster.images.add("reg.docker.com/user/edlz:mnist", contents={"/model_zoo": ROOT / "model_zoo"})
    terminal.daemon.on_pushed = terminal.image_from
    _, _, setting = blocks["registry"].command.partition(" ")
    name, _, value = setting.strip().partition("=")
    terminal.variables[name] = value
    for name in ("rights", "train", "wait"):
        terminal.do(blocks[name])
    terminal.do(blocks["prebuilt"])
    terminal.run("edlz stop test-mnist --now")

    for node in ("node-a", "node-b"):  # from here on only pods that tolerate it may run
        taint = {"spec": {"taints": [pool]}}
        cluster.store.patch("nodes", node, taint, "")
    write_files("on_prem.md", terminal.place)
    terminal.do(blocks["spec"])
    terminal.wait_for_phases("test-spec", 4)
    terminal.do(blocks["spec_pods"])
    (service,) = cluster.list("services", "elasticdl_job_name=test-spec")
    assert (service["spec"]["type"], service["spec"]["clusterIP"]) == ("ClusterIP", "None")


def test_the_demos(terminal: Terminal, mnist_sample: Path) -> None:
    blocks = steps("build_and_test.md")
    add_demo_image(terminal, mnist_sample, is_local=True)
    terminal.do(blocks["demo"])
    terminal.wait_for_phases("test-mnist", 4)
    terminal.do(blocks["demo_pods"])
    terminal.wait_for_log("elasticdl-test-mnist-master", "metrics[v=")
    for name in ("demo_log", "demo_delete"):
        terminal.do(blocks[name])


def test_a_demo_without_rights(terminal: Terminal, mnist_sample: Path) -> None:
    blocks = steps("build_and_test.md")
    add_demo_image(terminal, mnist_sample)
    terminal.do(blocks["demo_any"])
    terminal.wait_for_restart("elasticdl-test-mnist-master")
    terminal.do(blocks["demo_forbidden"])
    terminal.run(blocks["demo"].command.splitlines()[0])
    terminal.wait_for_phases("test-mnist", 4)
    terminal.do(blocks["demo_delete"])


def add_demo_image(terminal: Terminal, data: Path, **where: bool) -> None:
    """Let there be a node, and the image that has data and models in it."""
    add_nodes(terminal.cluster, 1)
    shutil.copytree(data, terminal.place / "image" / "mnist")
    contents = {"/data": terminal.place / "image", "/model_zoo": ROOT / "model_zoo"}
    terminal.cluster.images.add("edlz:dev", contents=contents, **where)


def test_the_common_part(terminal: Terminal, mnist_sample: Path) -> None:
    blocks = steps("kubernetes.md")
    cluster = terminal.cluster
    add_nodes(cluster, 3)
    cluster.create("namespaces", {"metadata": {"name": "research"}})
    cluster.namespace = "research"
    add_claim(terminal, "fileserver-claim", mnist_sample, "mnist")
    cluster.images.add("edlz:mnist")
    for name in ("rights", "train"):
        terminal.do(blocks[name])
    terminal.wait_for_log("elasticdl-hello-world-master", "metrics[v=50]")
    for name in ("look", "logs"):
        terminal.do(blocks[name])
