"""`--cluster_spec` and `--cluster_spec_json`: what they change, what they must not, and whose line is wrong."""

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from edlz.k8s.cluster.manifest import to_plain
from edlz.k8s.cluster.names import CLUSTER_SPEC, Owner
from edlz.k8s.flags.cluster_flags import check_cluster_flags
from edlz.k8s.flags.cluster_spec import MAX_SPEC_BYTES, SPEC_VARIABLE, ClusterSpec, load_cluster_spec
from edlz.k8s.objects.job_objects import ps_service
from edlz.k8s.objects.pods import master_pod, service_pod, settings_in_pods
from edlz.services.configuration.job_config import MAX_JOB_NAME, JobConfig
from edlz.services.configuration.problems import InvalidConfigError
from edlz.services.errors import ConfigError

OWNER = Owner("elasticdl-mnist-master", "uid-1")

SPEC = """\
from kubernetes import client


class MyCluster:
    def __init__(self):
        self._pool = "elasticdl"

    def with_pod(self, pod):
        pod.metadata.labels["my_app"] = self._pool
        pod.spec.tolerations = [
            client.V1Toleration(
                effect="NoSchedule", key="mycluster.com/app-pool", operator="Equal", value=self._pool
            )
        ]
        return pod

    def with_service(self, service):
        service.metadata.annotations["my_app"] = self._pool
        service.spec.type = "ClusterIP"
        service.spec.cluster_ip = "None"
        return service


cluster = MyCluster()
"""


def job(**changes: Any) -> JobConfig:
    settings = {
        "job_name": "mnist",
        "model_def": "a.b.c",
        "training_data": "/data",
        "image_name": "edlz:mnist",
    }
    return JobConfig(**{**settings, **changes})


def written(tmp_path: Path, text: str = SPEC) -> str:
    path = tmp_path / "spec.py"
    path.write_text(text, encoding="utf-8")
    return str(path)


def changed(line: str, tmp_path: Path, function: str = "with_pod") -> str:
    """Write a spec with one more line in a function; return its path."""
    argument = function.removeprefix("with_")
    head = f"def {function}(self, {argument}):\n"
    return written(tmp_path, SPEC.replace(head, f"{head}        {line}\n"))


def worker(spec: ClusterSpec, config: JobConfig, name: str = "worker-0") -> dict[str, Any]:
    pod = service_pod(settings_in_pods(config, "i"), name, owner=OWNER, master_addr="1.2.3.4:5", environ={})
    return dict(to_plain(spec.pod(pod, name.partition("-")[0])))


def master(spec: ClusterSpec, config: JobConfig) -> dict[str, Any]:
    return dict(to_plain(spec.pod(master_pod(config, "edlz:mnist"), "master")))


def service(spec: ClusterSpec, config: JobConfig) -> dict[str, Any]:
    return dict(to_plain(spec.service(ps_service(config, 0, OWNER))))


def error_of(path: str) -> tuple[str, str]:
    config = job(cluster_spec=path)
    with pytest.raises(ConfigError) as raised:
        worker(load_cluster_spec(config, {}), config)
    return raised.value.message.replace(path, "spec.py"), raised.value.help


# ---------------------------------------------------------------- Python


def test_the_example_of_the_tutorial(tmp_path: Path) -> None:
    config = job(cluster_spec=written(tmp_path))
    spec = load_cluster_spec(config, {})
    pod, made = worker(spec, config), service(spec, config)
    assert pod["metadata"]["labels"]["my_app"] == "elasticdl"
    assert pod["spec"]["tolerations"][0]["key"] == "mycluster.com/app-pool"
    assert (made["spec"]["type"], made["spec"]["clusterIP"]) == ("ClusterIP", "None")
    for plain in (pod, made, master(spec, config)):
        kubernetes_validate.validate(plain, "1.36", strict=True)


def test_no_spec_changes_nothing() -> None:
    config = job()
    spec = load_cluster_spec(config, {})
    assert master(spec, config) == to_plain(master_pod(config, "edlz:mnist"))
    assert service(spec, config) == to_plain(ps_service(config, 0, OWNER))


def test_the_text_travels_with_the_master_pod(tmp_path: Path) -> None:
    config = job(cluster_spec=written(tmp_path))
    plain = master(load_cluster_spec(config, {}), config)
    text = plain["metadata"]["annotations"][CLUSTER_SPEC]
    (variable,) = [v for v in plain["spec"]["containers"][0]["env"] if v["name"] == SPEC_VARIABLE]
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.annotations['{CLUSTER_SPEC}']"
    there = job(cluster_spec="not/there/spec.py")
    pod = worker(load_cluster_spec(there, {SPEC_VARIABLE: text}), there)
    assert pod["metadata"]["labels"]["my_app"] == "elasticdl"
    assert CLUSTER_SPEC not in pod["metadata"]["annotations"]


def test_lines_are_shown_where_there_is_no_file() -> None:
    text = SPEC.replace('pod.metadata.labels["my_app"]', "pod.metadata.lables")
    there = job(cluster_spec="not/there/spec.py")
    with pytest.raises(ConfigError) as raised:
        worker(load_cluster_spec(there, {SPEC_VARIABLE: text}), there)
    assert raised.value.message.startswith("not/there/spec.py:9: with_pod() raised ValidationError: ")
    assert raised.value.help == "the line is: pod.metadata.lables = self._pool"


@pytest.mark.parametrize(
    ("text", "message", "help_line"),
    [
        ("x = 1\n", "spec.py defines no object named cluster", "end it with: cluster = MyCluster()"),
        ("def f(:\n", "spec.py:1: it raised SyntaxError: invalid syntax", "the line is: def f(:"),
        ("import no_such_module\n", "spec.py:1: it raised ModuleNotFoundError: No module named 'no_such_module'", "the line is: import no_such_module"),
        ("import sys\nsys.exit(3)\n", "spec.py:2: it raised SystemExit: 3", "the line is: sys.exit(3)"),
        (SPEC.replace("def with_service", "def with_services"), "spec.py: cluster, a MyCluster, has no function with_service", "def with_service(self, service): return service"),
    ],
)  # fmt: skip
def test_what_a_file_must_have(tmp_path: Path, text: str, message: str, help_line: str) -> None:
    found, help_found = error_of(written(tmp_path, text))
    assert found.startswith(message)
    assert help_found == help_line


@pytest.mark.parametrize(
    ("line", "message", "help_line"),
    [
        ("return None", "spec.py: with_pod() returned nothing, not a V1Pod", "end it with: return pod"),
        ("return 'a'", "spec.py: with_pod() returned a str, not a V1Pod", "end it with: return pod"),
        (
            "pod.metadata.name = 'x'",
            "spec.py: with_pod() changed metadata.name from 'elasticdl-mnist-worker-0' to 'x'",
            "leave it as it is: edlz finds the job's objects by it",
        ),
        (
            "pod.metadata.labels.clear()",
            "spec.py: with_pod() changed metadata.labels.app from 'elasticdl' to None",
            "leave it as it is: edlz finds the job's objects by it",
        ),
        (
            "pod.metadata.labels['elasticdl-replica-index'] = '7'",
            "spec.py: with_pod() changed metadata.labels.elasticdl-replica-index from '0' to '7'",
            "leave it as it is: edlz finds the job's objects by it",
        ),
        (
            "pod.spec.containers = []",
            "spec.py: with_pod() took the container elasticdl-mnist-worker-0 away",
            "add to the pod, and keep what it has",
        ),
        (
            "pod.metadata.labels['my app'] = 'x'",
            'spec.py: with_pod() made a Pod that no cluster takes: metadata.labels: "my app" is no key',
            "",
        ),
        (
            "pod.metadata.owner_references = None; pod.spec.x",
            "spec.py:9: with_pod() raised AttributeError: 'V1PodSpec' object has no attribute 'x'",
            "the line is: pod.metadata.owner_references = None; pod.spec.x",
        ),
    ],
)
def test_what_with_pod_must_not_do(tmp_path: Path, line: str, message: str, help_line: str) -> None:
    assert error_of(changed(line, tmp_path)) == (message, help_line)


def test_what_with_service_must_not_do(tmp_path: Path) -> None:
    config = job(cluster_spec=changed("service.spec.selector = {}", tmp_path, "with_service"))
    with pytest.raises(ConfigError, match=r"with_service\(\) changed spec.selector from"):
        service(load_cluster_spec(config, {}), config)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert error_of(str(tmp_path / "none.py"))[0].endswith("cannot be read: No such file or directory")
    (tmp_path / "latin.py").write_bytes(b"# \xff\n")
    assert error_of(str(tmp_path / "latin.py"))[0].endswith("is no text in UTF-8")


def test_a_file_that_is_too_large_to_travel(tmp_path: Path) -> None:
    text = SPEC + "#" * (MAX_SPEC_BYTES - len(SPEC))
    load_cluster_spec(job(cluster_spec=written(tmp_path, text)), {})
    message, _ = error_of(written(tmp_path, text + "#"))
    assert message == "--cluster_spec=spec.py has 65537 bytes; at most 65536 travel to the master"


# ---------------------------------------------------------------- JSON

DATA = {
    "pod_spec": {
        "labels": {"team": "ads"},
        "annotations": {"note": "x"},
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
        "env": [{"name": "A", "value": "json"}],
    },
    "master_pod_spec": {"labels": {"team": "ops"}},
    "worker_pod_spec": {
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
        },
        "tolerations": [{"key": "b", "operator": "Exists", "toleration_seconds": 6, "effect": "NoExecute"}],
        "env": {"B": "2"},
    },
    "service_spec": {"type": "NodePort", "session_affinity": "None"},
}


def test_data_for_all_pods_and_for_those_of_a_role() -> None:
    config = job(cluster_spec_json=json.dumps(DATA), envs="A=flag")
    spec = load_cluster_spec(config, {})
    pod, head, made = worker(spec, config), master(spec, config), service(spec, config)
    assert (pod["metadata"]["labels"]["team"], head["metadata"]["labels"]["team"]) == ("ads", "ops")
    assert [t["tolerationSeconds"] for t in pod["spec"]["tolerations"]] == [5, 6]
    assert "affinity" in pod["spec"]
    assert "affinity" not in head["spec"]
    found = {v["name"]: v.get("value") for v in pod["spec"]["containers"][0]["env"]}
    assert (found["A"], found["B"]) == ("json", "2")
    assert (made["spec"]["type"], made["spec"]["sessionAffinity"], made["spec"]["ports"][0]["port"]) == (
        "NodePort",
        "None",
        2222,
    )
    for plain in (pod, head, made):
        kubernetes_validate.validate(plain, "1.36", strict=True)


def test_python_wins_for_pods(tmp_path: Path) -> None:
    config = job(cluster_spec=written(tmp_path), cluster_spec_json=json.dumps(DATA))
    spec = load_cluster_spec(config, {})
    pod, made = worker(spec, config), service(spec, config)
    assert "team" not in pod["metadata"]["labels"]
    assert pod["metadata"]["labels"]["my_app"] == "elasticdl"
    assert (made["spec"]["type"], made["spec"]["sessionAffinity"]) == ("ClusterIP", "None")


@pytest.mark.parametrize(
    ("text", "message", "help_part"),
    [
        (
            "{",
            "is no JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
            "e.g.",
        ),
        ("[]", "is no JSON object", "e.g."),
        ('{"pods": {}}', '"pods": no such key', "pod_spec"),
        ('{"pod_spec": {"label": {}}}', '"pod_spec.label": no such key', "did you mean labels?"),
        ('{"pod_spec": {"labels": {"a": 1}}}', '"pod_spec.labels.a": 1 is no text', '"a": "1"'),
        ('{"pod_spec": {"tolerations": {}}}', '"pod_spec.tolerations" is no list', "a list of V1Toleration"),
        (
            '{"ps_pod_spec": {"tolerations": [{"kee": "a"}]}}',
            '"ps_pod_spec.tolerations.0.kee": no such key',
            "the fields of a V1Toleration",
        ),
        (
            '{"pod_spec": {"affinity": {"nodeAffinity": {"x": 1}}}}',
            '"pod_spec.affinity.nodeAffinity.x": no such key',
            "V1Affinity",
        ),
        (
            '{"pod_spec": {"env": {"WORKER_ID": "1"}}}',
            '"pod_spec.env.0": WORKER_ID is set by edlz itself',
            "leave",
        ),
        (
            '{"service_spec": {"ports": "x"}}',
            '"service_spec.ports": Input should be a valid list',
            "V1ServiceSpec",
        ),
    ],
)
def test_an_error_names_the_place_in_the_data(text: str, message: str, help_part: str) -> None:
    with pytest.raises(InvalidConfigError) as raised:
        load_cluster_spec(job(cluster_spec_json=text), {})
    (problem,) = raised.value.problems
    assert problem.message == f"--cluster_spec_json{'' if message.startswith('is ') else ':'} {message}"
    assert help_part in problem.help


def test_data_must_not_hide_a_job_either() -> None:
    config = job(cluster_spec_json='{"pod_spec": {"labels": {"elasticdl-job-name": "x"}}}')
    with pytest.raises(
        ConfigError, match=r"--cluster_spec_json changed metadata\.labels\.elasticdl-job-name"
    ):
        worker(load_cluster_spec(config, {}), config)


# ---------------------------------------------------------------- all flags


def test_flags_that_are_right() -> None:
    assert check_cluster_flags(job(job_name="a" * MAX_JOB_NAME, namespace="research")) == []


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    config = job(
        namespace="Research",
        worker_resource_request="cpu=x",
        volume="mount_path=/a",
        envs="A",
        populate_env_names="(",
        cluster_spec=str(tmp_path / "none.py"),
        cluster_spec_json="[]",
        master_pod_priority="High",
    )
    found = " ".join(problem.message for problem in check_cluster_flags(config))
    assert '--namespace="Research" is no name of a namespace' in found
    for flag in ("worker_resource_request", "volume", "envs", "populate_env_names"):
        assert f"--{flag}: " in found
    assert "--cluster_spec_json is no JSON object" in found
    assert "--master_pod_priority: " in found


@pytest.mark.parametrize(
    ("changes", "message", "help_line"),
    [
        (
            {"namespace": "My_Space"},
            '--namespace="My_Space" is no name of a namespace: a-z, 0-9 and -, at most 63',
            "--namespace=my-space",
        ),
        (
            {"image_name": "EDLZ:dev"},
            '--image_name="EDLZ:dev" is no name of an image',
            "--image_name=edlz:dev",
        ),
        (
            {"worker_image": "a b"},
            '--worker_image="a b" is no name of an image',
            "e.g. --worker_image=registry.example.com/team/edlz:mnist",
        ),
        (
            {"checkpoint_dir": "ckpt"},
            '--checkpoint_dir="ckpt" is no absolute path, as the pods need one',
            "--checkpoint_dir=/ckpt",
        ),
        (
            {"log_file_path": "/x.log"},
            '--log_file_path="/x.log" needs a folder',
            "--log_file_path=/logs/x.log",
        ),
        (
            {"log_file_path": "/logs/$(MY_POD_NAME)/x.log"},
            '--log_file_path="/logs/$(MY_POD_NAME)/x.log" has its folder on no volume, so its name has to be '
            "known beforehand",
            "mount one with --volume, or keep variables to the file's name",
        ),
        (
            {"volume": "claim_name=c,mount_path=/var/run/edlz/keys"},
            '--volume: "mount_path=/var/run/edlz/keys": edlz mounts the job\'s keys there',
            "e.g. mount_path=/data",
        ),
    ],
)
def test_an_error_of_one_flag(changes: dict[str, str], message: str, help_line: str) -> None:
    (problem,) = check_cluster_flags(job(**changes))
    assert (problem.message, problem.help) == (message, help_line)


@pytest.mark.parametrize(
    "name",
    ["edlz", "edlz:mnist", "reg.docker.com/user/edlz:1.0", "localhost:5000/a/b_c--d", f"a@sha256:{'0' * 64}"],
)
def test_names_of_images(name: str) -> None:
    assert check_cluster_flags(job(image_name=name)) == []
