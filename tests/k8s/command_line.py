"""What somebody types who uses a cluster: `edlz` and `kubectl` as processes, and what the jobs' status says then.

shell = Shell(cluster, folder)
shell.edlz("train", "--job_name=j", ...)
shell.wait_for_end("j")
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

import edlz.k8s
import edlz.model_zoo
from edlz.k8s.cluster.names import STATUS, pod_name, selector
from edlz.services.protocol import named_status
from edlz.services.protocol.job_status import JobStatus
from tests.docker_daemon import FakeDaemon
from tests.k8s.cluster import TestCluster

__all__ = ["MANIFESTS", "MODELS", "Printed", "Shell", "check_ledger", "grant", "told", "told_last"]

_T = TypeVar("_T")
Object = dict[str, Any]
MANIFESTS = Path(edlz.k8s.__path__[0]) / "manifests"
MODELS = Path(edlz.model_zoo.__file__).parent
COMMAND_S, JOB_S = 120.0, 240.0
ENDED = ("Succeeded", "Failed", "Stopped")


def grant(cluster: TestCluster, *manifests: str) -> None:
    """Create the objects of manifests that ship with edlz, as `kubectl apply` does."""
    for name in manifests or ("edlz-rbac.yaml",):
        for obj in yaml.safe_load_all((MANIFESTS / name).read_text()):
            kind = obj["kind"].lower()
            cluster.create(f"{kind}es" if kind.endswith("s") else f"{kind}s", obj)


def check_ledger(status: Mapping[str, Any]) -> None:
    """Every minibatch is in every partition, once."""
    total = status["progress"]["minibatches_total"]
    assert status["ps"], status
    for partition in status["ps"]:
        counts = {name: partition[name] for name in ("expected", "applied", "missing", "doubled")}
        assert counts == {"expected": total, "applied": total, "missing": 0, "doubled": 0}, partition


def told(status: Mapping[str, Any], start: str) -> str:
    """Return the one event that starts so."""
    found, texts = _starting(status, start)
    assert len(found) == 1, f"{start!r} in\n{texts}"
    return found[0]


def told_last(status: Mapping[str, Any], start: str) -> str:
    """Return the newest event that starts so; those of masters before are kept, too."""
    found, texts = _starting(status, start)
    assert found, f"{start!r} in\n{texts}"
    return found[-1]


def _starting(status: Mapping[str, Any], start: str) -> tuple[list[str], str]:
    texts = [str(event["text"]) for event in status["events"]]
    return [text for text in texts if text.startswith(start)], "\n".join(texts)


@dataclass(frozen=True)
class Printed:
    """What a command has printed, and its exit code."""

    code: int
    out: str
    err: str


class Shell:
    """Runs commands against a cluster, from a folder of its own.

    Parameters
    ----------
    folder : Path
        The working directory; EDLZ_HOME lies in it.
    daemon : FakeDaemon, optional
        The Docker daemon here; the commands find none without it.
    """

    def __init__(self, cluster: TestCluster, folder: Path, daemon: FakeDaemon | None = None) -> None:
        self.cluster, self.folder, self._daemon = cluster, folder, daemon
        folder.mkdir(parents=True, exist_ok=True)
        outside = ("KUBERNETES_SERVICE_HOST", "FORCE_COLOR", "EDLZ_DEBUG")
        self._env = {name: text for name, text in os.environ.items() if name not in outside} | {
            "EDLZ_HOME": str(folder / "home"),
            "KUBECONFIG": str(cluster.kubeconfig),
            "DOCKER_HOST": daemon.url if daemon else f"unix://{folder}/no-docker.sock",
            "HOME": str(folder),
        }

    # -- commands

    def edlz(self, *arguments: str, code: int | None = 0) -> Printed:
        """Run a command; fail if its exit code is another one than `code` (None: any will do)."""
        return self._run([sys.executable, "-m", "edlz.client", *arguments], code)

    def kubectl(self, *arguments: str) -> str:
        """Return what kubectl prints."""
        return self._run(["kubectl", *arguments], 0).out

    @property
    def has_kubectl(self) -> bool:
        return shutil.which("kubectl") is not None

    def train_in_built_image(self, contents: Mapping[str, Path], *arguments: str) -> str:
        """Submit a job whose image is built and pushed for it; the nodes have it once that is done.

        Returns
        -------
        str
            The name of the image.

        Parameters
        ----------
        contents : mapping of str to Path
            What is in it: path in the image -> file or folder here.
        """
        assert self._daemon is not None
        pushes, before = self._daemon.pushes, len(self._daemon.pushes)
        command = [sys.executable, "-m", "edlz.client", "train", *arguments]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, cwd=self.folder, env=self._env, text=True, stdout=pipe, stderr=pipe
        ) as train:
            try:
                self.wait_for("a push", lambda: len(pushes) > before or train.poll() is not None)
                for image in pushes[before:]:
                    self.cluster.images.add(image, contents=contents)
                out, err = train.communicate(timeout=COMMAND_S)
            finally:
                train.kill()
        assert train.returncode == 0, f"{out}\n{err}\n{self.cluster.describe()}"
        (image,) = pushes[before:]
        return image

    def apply(self, manifest: Path) -> None:
        """Create what a manifest holds: with kubectl, or without it object by object."""
        if self.has_kubectl:
            self.kubectl("apply", "-f", str(manifest))
            return
        for obj in yaml.safe_load_all(manifest.read_text()):
            self.cluster.create(f"{obj['kind'].lower()}s", obj)

    def _run(self, command: list[str], code: int | None) -> Printed:
        ran = subprocess.run(
            command,
            cwd=self.folder,
            env=self._env,
            text=True,
            capture_output=True,
            timeout=COMMAND_S,
            check=False,
        )
        wanted = ran.returncode if code is None else code
        assert ran.returncode == wanted, f"{command}\n{ran.stdout}\n{ran.stderr}\n{self.cluster.describe()}"
        return Printed(ran.returncode, ran.stdout, ran.stderr)

    # -- jobs

    def status(self, job: str) -> Object:
        """Return what `edlz status -o json` prints."""
        return dict(json.loads(self.edlz("status", *self._word(job), "-o", "json").out))

    def note(self, job: str) -> JobStatus | None:
        """Return the status that stands on the master's pod, if there is one yet."""
        found = self.cluster.find("pods", pod_name(job, "master")) or {"metadata": {}}
        text = (found["metadata"].get("annotations") or {}).get(STATUS)
        return named_status.decode(text) if text else None

    def pods(self, job: str, phase: str = "", role: str = "") -> list[str]:
        """Return the names of a job's services whose pods are there, and not on their way out."""
        wanted = selector(job) + (f",elasticdl-replica-type={role}" if role else "")
        return [
            pod["metadata"]["name"].removeprefix(pod_name(job, ""))
            for pod in self.cluster.list("pods", wanted)
            if not pod["metadata"].get("deletionTimestamp")
            and (not phase or pod["status"].get("phase") == phase)
        ]

    def pod(self, job: str, name: str) -> Object:
        found = self.cluster.find("pods", pod_name(job, name))
        assert found is not None, f"no pod of {name}: {self.pods(job)}"
        return found

    def wait_for(self, what: str, condition: Callable[[], _T]) -> _T:
        return self.cluster.wait_for(condition, what, JOB_S)

    def wait_for_training(self, job: str, workers: int = 1, minibatches: int = 1) -> None:
        """Wait until so many workers train, and so much is done; fail if the job ends before."""

        def trains() -> bool:
            note = self.note(job)
            if note is None:
                return False
            assert note.state not in ENDED, f"{job} has ended: {note}"
            states = [worker.state for worker in note.workers]
            return states.count("training") >= workers and note.minibatches >= minibatches

        self.wait_for(f"{workers} workers of {job} train at minibatch {minibatches}", trains)

    def wait_for_end(self, job: str, state: str = "Succeeded") -> Object:
        """Wait for the end of a job, and of its master's pod; return its status."""
        code = {"Succeeded": 0, "Failed": 1, "Stopped": 7}[state]
        self.wait_for(f"the end of {job}", lambda: (note := self.note(job)) and note.state in ENDED)
        self.edlz("wait", *self._word(job), f"--timeout={JOB_S:.0f}s", code=code)
        status = self.status(job)
        assert status["job"]["state"] == state, status
        return status

    def _word(self, job: str) -> tuple[str, str, str]:
        """Return how a job is named that was not submitted from here."""
        return job, "-n", self.cluster.namespace
