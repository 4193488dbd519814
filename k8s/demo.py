"""`python -m edlz.k8s.demo`: write the demo manifests anew, from the functions that build every job's master pod.

The demos train MNIST with the data that lies in the development image.
"""

import sys
from importlib.resources import files
from pathlib import Path

from edlz.k8s.cluster.manifest import to_yaml
from edlz.k8s.objects.pods import master_pod
from edlz.services.configuration.job_config import JobConfig

__all__ = ["DEMOS", "MANIFESTS", "demo_manifest"]

MANIFESTS = Path(str(files("edlz.k8s"))) / "manifests"

_IMAGE = "edlz:dev"
_MINIKUBE = """\
# MNIST on Minikube, with an image that was built inside it (eval $(minikube docker-env)).
"""
_ANY = """\
# MNIST on any cluster.  Push the image to a registry that the nodes can pull from, and put its name in place of
# "edlz:dev" (three times: the container's image, its --image_name argument, and the settings in the annotation).
"""
_COMMON = """\
# The master pod makes all the others; its service account has to be allowed to:
#
#     kubectl apply -f k8s/manifests/edlz-rbac.yaml
#     kubectl apply -f k8s/manifests/{file}
#     kubectl get pods -l elasticdl_job_name=test-mnist
#     kubectl logs elasticdl-test-mnist-master | grep Evaluation
#     kubectl delete pod elasticdl-test-mnist-master
#
# Written by python -m edlz.k8s.demo; edlz train --yaml=FILE writes such a file for any job.
"""
DEMOS: dict[str, tuple[str, str]] = {
    "edlz-demo-minikube.yaml": (_MINIKUBE, "Never"),
    "edlz-demo-k8s.yaml": (_ANY, "Always"),
}
"""File names of the demos, each with its first comment and when the image is pulled."""


def demo_manifest(file: str) -> str:
    """Return the text of one of the demos."""
    comment, pull = DEMOS[file]
    config = JobConfig(
        job_name="test-mnist",
        model_def="mnist.mnist_functional_api.custom_model",
        training_data="/data/mnist/train",
        validation_data="/data/mnist/test",
        num_epochs=1,
        minibatch_size=64,
        records_per_task=100,
        num_workers=2,
        grads_to_wait=2,
        evaluation_steps=50,
        image_pull_policy=pull,
        worker_resource_request="cpu=0.4,memory=1024Mi",
        worker_resource_limit="cpu=1,memory=2048Mi",
        ps_resource_request="cpu=0.2,memory=1024Mi",
        ps_resource_limit="cpu=1,memory=2048Mi",
        master_resource_request="cpu=0.2,memory=1024Mi",
        master_resource_limit="cpu=1,memory=2048Mi",
    )
    return comment + _COMMON.format(file=file) + to_yaml([master_pod(config, _IMAGE)])


def main() -> int:
    for file in DEMOS:
        (MANIFESTS / file).write_text(demo_manifest(file), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
