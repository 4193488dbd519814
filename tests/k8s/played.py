"""A cluster that a test plays: an emulated API server, whose pods run because the test says so."""

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

import edlz.k8s
from edlz.k8s.cluster.names import STATUS, labels, pod_name
from edlz.services.protocol.job_status import JobStatus
from tests.k8s.server.api_server import ApiServer
from tests.k8s.server.objects.history import Change
from tests.k8s.server.pod_logs import ContainerLog, ListedLog

NODE = "node-1"


class PlayedCluster:
    """The API server and what the test makes of its pods.

    Attributes
    ----------
    first_word : the status that a master pod is given when it appears; None to leave it Pending
    is_mute : whether a master pod runs that has no first word
    logs : by pod name
    """

    def __init__(self, server: ApiServer) -> None:
        self.server, self.store = server, server.store
        self.first_word: JobStatus | None = None
        self.is_mute = False
        self.logs: dict[str, ContainerLog] = {}
        self._appeared: queue.Queue[str | None] = queue.Queue()
        server.kubelets[NODE] = lambda _namespace, pod, _container, _previous: self.logs.get(pod, ListedLog())

    def add_node(self, name: str = NODE, cpu: str = "8", memory: str = "32Gi") -> None:
        """Add a node that takes pods."""
        amounts = {"cpu": cpu, "memory": memory, "pods": "110"}
        about: dict[str, Any] = {
            "nodeInfo": {"architecture": "amd64"},
            "allocatable": amounts,
            "capacity": amounts,
        }
        self.store.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        self.store.patch("nodes", name, {"status": about}, "", subresource="status")

    def grant(self, namespace: str = "default") -> None:
        """Give the masters of a namespace their rights, as `kubectl apply` does."""
        for obj in yaml.safe_load_all(
            (Path(edlz.k8s.__path__[0]) / "manifests" / "edlz-rbac.yaml").read_text()
        ):
            self.store.create(f"{obj['kind'].lower()}s", obj, namespace)

    def add_pod(self, job: str, name: str, namespace: str = "default", **annotations: str) -> None:
        """Create a pod of a job, as the client or a master would."""
        whole = pod_name(job, name)
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": whole, "labels": labels(job, name), "annotations": annotations},
            "spec": {"containers": [{"name": whole, "image": "edlz:mnist"}], "nodeName": NODE},
        }
        self.store.create("pods", body, namespace)

    def run(self, pod: str, namespace: str = "default") -> None:
        """Let a pod's container run."""
        state = {"running": {"startedAt": "2026-05-04T09:12:03Z"}}
        self._set(pod, namespace, {"phase": "Running", "podIP": "127.3.0.1", "conditions": []}, state)

    def wait(self, pod: str, reason: str, message: str, namespace: str = "default") -> None:
        """Let a pod's container wait for something."""
        state = {"waiting": {"reason": reason, "message": message}}
        self._set(pod, namespace, {"phase": "Pending", "conditions": []}, state)

    def unschedulable(self, pod: str, message: str, namespace: str = "default") -> None:
        """Let a pod wait for a node."""
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        status = {"phase": "Pending", "conditions": [condition]}
        self.store.patch("pods", pod, {"status": status}, namespace, subresource="status")

    def lose_node(self, pod: str, namespace: str = "default") -> None:
        """Let the cluster hold a running pod's node for unreachable."""
        conditions = [
            {"type": "Ready", "status": "False"},
            {"type": "ContainersReady", "status": "True"},
        ]
        self.store.patch("pods", pod, {"status": {"conditions": conditions}}, namespace, subresource="status")

    def end(self, pod: str, code: int = 0, namespace: str = "default") -> None:
        """Let a pod's container end."""
        state = {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}}
        self._set(pod, namespace, {"phase": "Failed" if code else "Succeeded", "conditions": []}, state)

    def say(self, job: str, status: JobStatus, namespace: str = "default") -> None:
        """Let a job's master tell how it fares."""
        text = msgspec.json.encode(status).decode()
        patch = {"metadata": {"annotations": {STATUS: text}}}
        self.store.patch("pods", pod_name(job, "master"), patch, namespace)

    def annotation(self, job: str, name: str, namespace: str = "default") -> str | None:
        """Return an annotation of a job's master."""
        pod = self.store.get("pods", pod_name(job, "master"), namespace)
        found: str | None = pod["metadata"].get("annotations", {}).get(name)
        return found

    def _set(self, pod: str, namespace: str, status: dict[str, Any], state: dict[str, Any]) -> None:
        container = {"name": pod, "image": "edlz:mnist", "ready": "running" in state, "state": state}
        status = {**status, "containerStatuses": [{**container, "restartCount": 0, "imageID": ""}]}
        self.store.patch("pods", pod, {"status": status}, namespace, subresource="status")

    # -- master pods that appear

    def _on_change(self, change: Change) -> None:
        name = change.after["metadata"]["name"]
        if (change.kind, change.resource) == ("ADDED", "pods") and name.endswith("-master"):
            self._appeared.put(f"{change.after['metadata']['namespace']}/{name}")

    def _begin_masters(self) -> None:
        while (found := self._appeared.get()) is not None:
            namespace, _, pod = found.partition("/")
            job = pod.removeprefix("elasticdl-").removesuffix("-master")
            if self.is_mute:
                self.store.bind(pod, NODE, namespace)  # to a node that has its log
            if self.first_word is not None or self.is_mute:
                self.run(pod, namespace)
            if self.first_word is not None:
                self.say(job, msgspec.structs.replace(self.first_word, name=job), namespace)


@contextmanager
def played_cluster(kubeconfig: Path, namespace: str = "default") -> Iterator[PlayedCluster]:
    """Run an API server, and play its cluster; its kubeconfig is written."""
    with ApiServer() as server:
        server.write_kubeconfig(kubeconfig, namespace=namespace)
        played = PlayedCluster(server)
        forget = server.store.subscribe(played._on_change)
        thread = threading.Thread(target=played._begin_masters)
        thread.start()
        try:
            yield played
        finally:
            forget()
            played._appeared.put(None)
            thread.join()


def status(state: str = "Training", **more: Any) -> JobStatus:
    """Return a status of a job that began a minute ago."""
    now = time.time()
    facts = {"name": "mnist", "mode": "sync", "slots": 2, "started_at": now - 60, "now": now, "epochs": 2}
    return JobStatus(**{**facts, "state": state, **more})
