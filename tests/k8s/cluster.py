"""A whole cluster on this machine: an emulated API server, and pods that are real processes.

    with TestCluster(folder) as cluster:
        cluster.add_node("a", cpu="2")
        cluster.create("pods", pod)
        cluster.wait_for_phase("p", "Succeeded")

Everything runs in threads of its own, so a test may run `edlz` commands (with `cluster.kubeconfig`) meanwhile.
Pods get addresses of their own in 127.0.0.0/8. How pods see their volumes: container.py.
"""

import asyncio
import itertools
import random
import signal
import threading
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tests.k8s.any_cluster import AnyCluster
from tests.k8s.nodes.control_plane import ControlPlane
from tests.k8s.nodes.kubelet import Environment, Images, Kubelet
from tests.k8s.nodes.pod_life import Times
from tests.k8s.server.access import ADMIN
from tests.k8s.server.api_server import ApiServer
from tests.k8s.server.objects.store import Store, timestamp

__all__ = ["PYTHON_IMAGE", "TestCluster"]

_T = TypeVar("_T")
Object = dict[str, Any]
Objects = list[Object]
PYTHON_IMAGE = "edlz:test"  # an image that has this Python and edlz
CLOSE_S = 30.0


class TestCluster(AnyCluster):
    """An emulated cluster, to be used with `with`; it starts without nodes.

    Parameters
    ----------
    folder : Path
        For everything that pods and nodes keep.
    times : Times
        How long the cluster waits for what.
    limits_memory : bool
        Kill containers that have more memory than their limit.

    Attributes
    ----------
    api : ApiServer
        With `faults` to inject; `store` is its content. Faults concern clients, not the cluster's own components.
    images : Images
        Those that nodes can run; `image` is one of them.
    kubeconfig : Path
        For an administrator; its namespace is `namespace`.
    """

    __test__ = False
    is_emulated = True

    def __init__(
        self, folder: Path, *, times: Times | None = None, limits_memory: bool = False, tls: bool = True
    ) -> None:
        self._folder, self._times = folder, times or Times()
        self._limits_memory = limits_memory
        self.api = ApiServer(tls=tls)
        self.namespace, self.image = "default", PYTHON_IMAGE
        self.images = Images()
        self.images.add(PYTHON_IMAGE)
        self.control_plane = ControlPlane(self.api.store, self._times)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="control-plane", daemon=True)
        self._work: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        # Clusters of several test runs on one machine do not meet: each begins at a random address.
        self._addresses = itertools.count(random.randrange(2**24))

    def __enter__(self) -> "TestCluster":
        self.api.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(CLOSE_S)
        assert not self._thread.is_alive(), "the cluster's thread does not end"
        self.api.__exit__()
        self.check()

    # -- for clients

    @property
    def store(self) -> Store:
        return self.api.store

    @property
    def kubeconfig(self) -> Path:
        path = self._folder / "kubeconfig"
        if not path.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            self.api.write_kubeconfig(path, ADMIN, self.namespace)
        return path

    def emulated(self) -> "TestCluster":
        return self

    # -- objects

    def create(self, resource: str, obj: Object) -> Object:
        return self.store.create(resource, obj, self.namespace)

    def find(self, resource: str, name: str) -> Object | None:
        return self.store.find(resource, name, self.namespace)

    def list(self, resource: str, labels: str = "") -> Objects:
        return self.store.list(resource, self.namespace, labels=labels)

    def delete(self, resource: str, name: str, grace_s: int | None = None) -> None:
        self.store.delete(resource, name, self.namespace, grace_s=grace_s)

    def log(self, pod: str, container: str | None = None, *, previous: bool = False) -> str:
        found = self.store.get("pods", pod, self.namespace)
        name = container or found["spec"]["containers"][0]["name"]
        log = self._kubelet_of(found).log(self.namespace, pod, name, previous)
        return b"".join(text for _, text in log.lines(0)).decode(errors="replace")

    # -- powers over nodes

    def add_node(
        self,
        name: str,
        cpu: str = "4",
        memory: str = "8Gi",
        *,
        gpus: int = 0,
        pods: int = 110,
        labels: Mapping[str, str] | None = None,
        taints: Objects | None = None,
    ) -> None:
        """Let a node join, with a kubelet that runs pods as processes of this machine."""
        capacity = {"cpu": cpu, "memory": memory, "pods": str(pods), "ephemeral-storage": "100Gi"}
        capacity |= {"nvidia.com/gpu": str(gpus)} if gpus else {}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        ready["lastTransitionTime"] = timestamp(time.time())
        node = {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
            "spec": {"taints": taints} if taints else {},
            "status": {
                "capacity": capacity,
                "allocatable": capacity,
                "conditions": [ready],
                "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux"},
            },
        }

        async def join() -> None:
            kubelet = Kubelet(name, self._environment())
            self.control_plane.kubelets[name] = kubelet
            self.api.kubelets[name] = kubelet.log
            kubelet.step(self.store.clock())  # its first heartbeat comes before its node is looked at
            self.store.create("nodes", node)

        self._call(join())

    def lose_node(self, name: str, *, crash: bool = True) -> None:
        """Let a node fall silent: its machine is off, or (crash=False) only cut off and its pods run on."""

        async def lose() -> None:
            self.control_plane.kubelets[name].disconnect(crash=crash)

        self._call(lose())

    def restore_node(self, name: str) -> None:
        """Let a lost node speak again."""

        async def restore() -> None:
            self.control_plane.kubelets[name].reconnect()
            self.control_plane.wake()

        self._call(restore())

    def remove_node(self, name: str) -> None:
        """Take a lost node's object away, as an operator or a cloud does."""

        async def remove() -> None:
            self.control_plane.kubelets.pop(name).close()
            del self.api.kubelets[name]
            self.store.delete("nodes", name)

        self._call(remove())

    # -- powers over containers

    def kill_container(
        self, pod: str, number: signal.Signals = signal.SIGKILL, container: str | None = None
    ) -> None:
        """Send a signal to a running container, as somebody on its node would."""
        self._send(pod, container, number, out_of_memory=False)

    def oom(self, pod: str, container: str | None = None) -> None:
        """Let a running container be out of memory now: killed, with reason OOMKilled."""
        self._send(pod, container, signal.SIGKILL, out_of_memory=True)

    def pod_folder(self, pod: str) -> Path:
        """Return where a pod's volumes are: `volumes/NAME` below it."""
        found = self.store.get("pods", pod, self.namespace)
        return self._kubelet_of(found).folder_of(found["metadata"]["uid"]).path

    def claim_folder(self, claim: str) -> Path:
        """Return where the data of a volume claim is."""
        return self._folder / "claims" / self.namespace / claim

    def _send(self, pod: str, container: str | None, number: signal.Signals, *, out_of_memory: bool) -> None:
        found = self.store.get("pods", pod, self.namespace)

        async def send() -> None:
            uid = found["metadata"]["uid"]
            self._kubelet_of(found).send(uid, container, number, out_of_memory=out_of_memory)

        self._call(send())

    def _kubelet_of(self, pod: Object) -> Kubelet:
        return self.control_plane.kubelets[pod["spec"]["nodeName"]]

    # -- the thread

    def _environment(self) -> Environment:
        return Environment(
            store=self.store,
            folder=self._folder,
            images=self.images,
            times=self._times,
            wake=self.control_plane.wake,
            new_address=self._new_address,
            service_account=self._service_account,
            variables=self._variables,
            write_kubeconfig=self._write_kubeconfig,
            limits_memory=self._limits_memory,
        )

    def _new_address(self) -> str:
        """Return the next address 127.a.b.c, none of which ends with 0, 1 or 255."""
        while True:
            number = next(self._addresses) % 2**24
            if number % 256 not in (0, 1, 255) and number >= 256:
                return f"127.{number >> 16}.{number >> 8 & 255}.{number & 255}"

    def _service_account(self, namespace: str, name: str) -> Mapping[str, str]:
        ca = self.api.ca_file.read_text() if self.api.ca_file else ""
        return {
            "token": self.api.service_account_token(namespace, name),
            "ca.crt": ca,
            "namespace": namespace,
        }

    def _write_kubeconfig(self, path: Path, namespace: str, account: str) -> None:
        self.api.write_kubeconfig(path, self.api.access.service_account(namespace, account), namespace)

    def _variables(self) -> Mapping[str, str]:
        return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.api.port)}

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._work = self._loop.create_task(self.control_plane.run(), name="control-plane")
        try:
            self._loop.run_until_complete(self._work)
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self._failure = error
        finally:
            self._loop.close()

    def _stop(self) -> None:
        if self._work is not None:
            self._work.cancel()

    def check(self) -> None:
        if self._failure is not None:
            raise AssertionError("the emulated cluster itself has failed") from self._failure

    def _call(self, work: Coroutine[Any, Any, _T]) -> _T:
        self.check()
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CLOSE_S)
