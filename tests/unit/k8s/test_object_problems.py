"""What no server would take is found before it is sent."""

import dataclasses
from typing import Any

import pytest

from edlz.k8s.flags.object_check import object_problems
from edlz.k8s.objects.pods import settings_in_pods
from edlz.services.configuration.job_config import MAX_JOB_NAME
from tests.unit.k8s.pod_objects import container, job, pod


def broken(**spec: Any) -> dict[str, Any]:
    plain = pod("worker-0")
    return {**plain, "spec": {**plain["spec"], **spec}}


def with_container(**changes: Any) -> dict[str, Any]:
    return broken(containers=[{**container(pod("worker-0")), **changes}])


@pytest.mark.parametrize(
    ("plain", "problem"),
    [
        ({"kind": "Pod", "metadata": {"name": "A_b"}}, 'metadata.name "A_b" is no name of a Pod'),
        (
            {"kind": "Service", "metadata": {"name": "1a"}, "spec": {"ports": [{"port": 1}]}},
            'metadata.name "1a" is no name of a Service',
        ),
        (
            {"kind": "Pod", "metadata": {"name": "a", "labels": {"x": "a b"}}},
            'metadata.labels["x"]: "a b" is no value: letters, digits, -, _ and ., at most 63',
        ),
        (
            {"kind": "Pod", "metadata": {"name": "a", "labels": {"/x": "a"}}},
            'metadata.labels: "/x" is no key',
        ),
        (
            {"kind": "Pod", "metadata": {"name": "a", "annotations": {"x": "a" * (1 << 18)}}},
            "metadata.annotations are more than 262144 bytes",
        ),
        (broken(priorityClassName="High"), 'spec.priorityClassName "High" is no name of a priority class'),
        (
            broken(tolerations=[{"key": "a", "operator": "Exist"}]),
            'spec.tolerations: operator "Exist" is none of Equal, Exists, Lt, Gt',
        ),
        (broken(volumes=[]), 'container elasticdl-mnist-worker-0: /tmp: no volume "tmp"'),
        (
            with_container(resources={"requests": {"memory": "1K"}}),
            'container elasticdl-mnist-worker-0: requests.memory: "1K" is no quantity',
        ),
        (
            with_container(resources={"requests": {"disk": "1"}}),
            'container elasticdl-mnist-worker-0: requests: "disk" is no resource',
        ),
        (
            with_container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            "container elasticdl-mnist-worker-0: cpu: the request of 2 exceeds the limit of 1",
        ),
        (
            with_container(resources={"requests": {"a.b/gpu": "2"}}),
            "container elasticdl-mnist-worker-0: a.b/gpu: a device needs a limit equal to the request",
        ),
        (
            with_container(env=[{"name": "A"}, {"name": "A"}]),
            'container elasticdl-mnist-worker-0: env: "A" stands there twice',
        ),
        (with_container(image=""), 'container elasticdl-mnist-worker-0: "" is no image'),
        (
            with_container(name="a" * 64),
            f'container "{"a" * 64}": no name of a container (at most 63 letters)',
        ),
    ],
)
def test_what_no_server_would_take(plain: dict[str, Any], problem: str) -> None:
    assert problem in object_problems(plain)


def test_a_job_name_of_the_greatest_length_fits_everywhere() -> None:
    assert object_problems(pod("worker-99999", job_name="a" * MAX_JOB_NAME)) == []
    assert object_problems(pod("worker-99999", job_name="a" * (MAX_JOB_NAME + 1))) != []


def test_settings_in_pods_are_steady() -> None:
    config = settings_in_pods(job(job_dir="/data/j"), "edlz:mnist")
    assert settings_in_pods(dataclasses.replace(config), "edlz:mnist") == config
