"""Pods, services and secrets of a job: names, arguments, variables, rights and folders."""

from typing import Any

import kubernetes_validate
import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from edlz.k8s.cluster.api_records import Pod
from edlz.k8s.cluster.manifest import to_plain
from edlz.k8s.cluster.names import labels, pod_name, selector, short_name
from edlz.k8s.flags.cluster_spec import ClusterSpec
from edlz.k8s.flags.object_check import object_problems
from edlz.k8s.master import own_pod
from edlz.k8s.objects.job_objects import JobObjects, ps_service
from edlz.k8s.objects.pods import service_pod, settings_in_pods
from edlz.services.configuration.arguments import read_config
from tests.unit.k8s.pod_objects import (
    ADDRESS,
    OWNER,
    VERSIONS,
    all_objects,
    container,
    job,
    master,
    mounts,
    pod,
    variables,
)

ALLREDUCE = {"distribution_strategy": "AllreduceStrategy"}


def test_every_object_passes_the_schemas_of_all_versions() -> None:
    objects = [plain for _, plain in all_objects()]
    for number, plain in enumerate(objects):
        for version in VERSIONS if number < 21 else VERSIONS[-1:]:
            kubernetes_validate.validate(plain, version, strict=True)


def test_every_object_passes_our_own_check() -> None:
    for name, plain in all_objects():
        assert object_problems(plain) == [], name


def test_every_object_has_the_labels_of_its_job() -> None:
    for name, plain in all_objects():
        found = plain["metadata"]["labels"]
        assert (
            found["elasticdl-job-name"] == found["elasticdl_job_name"] == found["app.kubernetes.io/instance"]
        )
        assert ("ownerReferences" in plain["metadata"]) == (name != "master")


def test_names_and_labels() -> None:
    assert pod_name("j", "worker-3") == "elasticdl-j-worker-3"
    assert short_name("j", "elasticdl-j-worker-3") == "worker-3"
    assert labels("j", "ps-1")["elasticdl-replica-index"] == "1"
    assert set(selector("j").split(",")) <= {f"{key}={value}" for key, value in labels("j", "ps-1").items()}


def test_the_owner_holds_what_it_made() -> None:
    (reference,) = pod("worker-0")["metadata"]["ownerReferences"]
    assert (reference["name"], reference["uid"], reference["blockOwnerDeletion"]) == (
        OWNER.name,
        OWNER.uid,
        True,
    )


def arguments_of(plain: dict[str, Any], module: str) -> list[str]:
    command = container(plain)["command"]
    start = command.index(module)
    assert command[start - 2 : start] == ["python", "-m"]
    return [argument.replace("$$", "$") for argument in command[start + 1 :]]


def test_the_master_gets_the_settings_of_the_job() -> None:
    changes = {"num_epochs": 3, "model_params": "name='a$(HOME)b$$c'", "seed": 7, "envs": "A=$(B)"}
    reading = read_config(arguments_of(master(**changes), "edlz.k8s.master"), "master", {})
    assert reading.errors == ()
    assert reading.config.model_params == changes["model_params"]
    assert (reading.config.num_epochs, reading.config.seed, reading.config.envs) == (3, 7, "A=$(B)")
    assert (reading.config.host, reading.config.port) == ("$(MY_POD_IP)", 50001)
    assert reading.config.image_name == "edlz:mnist"


@given(st.text(st.characters(codec="ascii", categories=("L", "N", "P", "S")), max_size=20))
def test_kubernetes_leaves_our_arguments_as_they_are(text: str) -> None:
    """Kubernetes takes `$(NAME)` for a variable, and `$$` for a dollar."""
    command = container(master(training_data=f"/{text}"))["command"]
    argument = next(argument for argument in command if argument.startswith("--training_data="))
    expanded = argument.replace("$$", "\0")
    assert "$" not in expanded
    assert expanded.replace("\0", "$") == f"--training_data=/{text}"


def test_the_master_pod_says_what_it_is_for() -> None:
    plain = master(num_workers=5)
    assert plain["metadata"]["labels"]["status"] == "Pending"
    assert yaml.safe_load(plain["metadata"]["annotations"]["edlz.io/config"])["num_workers"] == 5
    assert variables(plain)["MY_POD_UID"] == "metadata.uid"
    assert plain["spec"]["restartPolicy"] == "OnFailure"


@pytest.mark.parametrize(
    ("status_port", "port"), [("", "50002"), ("0", "50002"), ("8080", "8080"), ("none", None)]
)
def test_the_master_pod_says_where_it_is_scraped(status_port: str, port: str | None) -> None:
    found = master(status_port=status_port)
    marks = {k: v for k, v in found["metadata"]["annotations"].items() if k.startswith("prometheus.io/")}
    path = {"prometheus.io/scrape": "true", "prometheus.io/port": port, "prometheus.io/path": "/metrics"}
    assert marks == (path if port else {})
    assert ("--metrics_host=$(MY_POD_IP)" in found["spec"]["containers"][0]["command"]) == bool(port)


def test_the_threads_of_a_worker_are_those_of_its_pod() -> None:
    def threads(**changes: Any) -> int:
        return settings_in_pods(job(**changes), "i").worker_threads

    assert threads(worker_resource_request="cpu=500m,memory=1Gi") == 1
    assert threads(worker_resource_request="cpu=2.5", worker_resource_limit="cpu=4") == 4
    assert threads(worker_threads=3, given=frozenset({"worker_threads"})) == 3


def test_commands_have_no_shell() -> None:
    for _, plain in all_objects():
        if plain["kind"] == "Pod":
            assert container(plain)["command"][:2] == ["python", "-m"]


def test_a_worker_and_a_ps_know_their_master() -> None:
    worker = read_config(arguments_of(pod("worker-3"), "edlz.services.worker"), "worker", {}).checked()
    assert (worker.worker_id, worker.master_addr, worker.keys_dir) == (3, ADDRESS, "/var/run/edlz/keys")
    ps = read_config(arguments_of(pod("ps-1"), "edlz.services.ps"), "ps", {}).checked()
    assert (ps.ps_id, ps.host, ps.port, ps.job_dir) == (1, "$(MY_POD_IP)", 2222, "/var/lib/edlz/job")


@pytest.mark.parametrize(("address", "host"), [("10.1.2.3", "10.1.2.3"), ("fd00::1:2", "[fd00::1:2]")])
def test_services_listen_at_the_address_of_their_pod(address: str, host: str) -> None:
    def arguments(plain: dict[str, Any], module: str) -> list[str]:
        return [argument.replace("$(MY_POD_IP)", address) for argument in arguments_of(plain, module)]

    at_master = read_config(arguments(master(), "edlz.k8s.master"), "master", {}).checked()
    assert at_master.listen_endpoint == at_master.reachable_at(at_master.listen_endpoint)
    assert at_master.listen_endpoint == f"tcp://{host}:50001"
    ps = read_config(arguments(pod("ps-1"), "edlz.services.ps"), "ps", {}).checked()
    assert ps.listen_endpoint == f"tcp://{host}:2222"
    own = own_pod(at_master, {"MY_POD_UID": "u", "MY_POD_IP": address})
    assert own.address == f"{host}:50001"
    worker = service_pod(job(), "worker-0", owner=OWNER, master_addr=own.address)
    found = variables(to_plain(worker))
    assert found["MASTER_ADDR"] == f"{host}:50001"
    flags = read_config(arguments(to_plain(worker), "edlz.services.worker"), "worker", {}).checked()
    assert flags.master_endpoint == f"tcp://{host}:50001"
    member = to_plain(service_pod(job(**ALLREDUCE), "worker-0", owner=OWNER, master_addr=own.address))
    flags = read_config(arguments(member, "edlz.services.worker"), "worker", {}).checked()
    assert flags.listen_endpoint == f"tcp://{host}:2222"


@pytest.mark.parametrize(
    ("address", "is_astray"),
    [
        ("10.0.0.7:50001", False),
        ("10.0.0.8:50001", True),
        ("[fd00::8]:50001", True),
        ("master.research.svc:50001", False),
    ],
)
def test_a_pod_that_looks_for_its_master_where_it_was_before(address: str, is_astray: bool) -> None:
    config = settings_in_pods(job(log_file_path="/logs/a.log"), "edlz:mnist")
    objects = JobObjects(config, OWNER, "10.0.0.7:50001", ClusterSpec())
    for name in ("ps-0", "worker-1"):
        made = to_plain(service_pod(config, name, owner=OWNER, master_addr=address))
        assert objects.is_astray(msgspec.convert(made, Pod)) is is_astray
    assert not objects.is_astray(Pod())


def test_variables_of_a_worker() -> None:
    found = variables(
        pod("worker-3", envs="A=1,2,HOME=/home/me", populate_env_names="NCCL_.*", num_workers=4)
    )
    assert found == {
        "MY_POD_IP": "status.podIP",
        "MY_POD_NAME": "metadata.name",
        "MY_NAMESPACE": "metadata.namespace",
        "HOME": "/home/me",
        "NCCL_A": "1",
        "A": "1,2",
        "MASTER_ADDR": ADDRESS,
        "WORKER_NUM": "4",
        "WORKER_ID": "3",
    }


def test_variables_of_the_master_are_handed_on_as_they_are() -> None:
    config = settings_in_pods(job(populate_env_names="A|B", envs="B=$(MY_POD_IP)"), "edlz:mnist")
    environ = {"A": "$(MY_POD_IP) $$", "B": "1"}
    made = service_pod(config, "worker-0", owner=OWNER, master_addr=ADDRESS, environ=environ)
    found = variables(to_plain(made))
    assert (found["A"], found["B"]) == ("$$(MY_POD_IP) $$$$", "$(MY_POD_IP)")


def test_more_memory_for_one_that_ran_out_of_it() -> None:
    resources = container(pod("worker-7", memory="6144Mi"))["resources"]
    assert resources == {
        "requests": {"cpu": "1", "memory": "6144Mi"},
        "limits": {"cpu": "1", "memory": "6144Mi"},
    }


def test_a_service_leads_to_its_ps_alone() -> None:
    config = job()
    plain = to_plain(ps_service(config, 1, OWNER))
    for name, is_selected in (("ps-1", True), ("ps-0", False), ("worker-1", False)):
        found = labels("mnist", name)
        assert all(found[key] == value for key, value in plain["spec"]["selector"].items()) == is_selected
    assert plain["spec"]["ports"][0]["port"] == 2222
    assert plain["metadata"]["annotations"] == plain["metadata"]["labels"]


def test_pods_have_no_rights_that_they_do_not_need() -> None:
    for plain in (master(), pod("ps-0"), pod("worker-0")):
        assert plain["spec"]["securityContext"]["runAsNonRoot"] is True
        assert plain["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container(plain)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
    assert pod("ps-0")["spec"]["automountServiceAccountToken"] is False
    assert "automountServiceAccountToken" not in master()["spec"]


def test_keys_are_mounted_where_they_are_used() -> None:
    assert mounts(pod("worker-0"))["/var/run/edlz/keys"] == "keys"
    (keys,) = [volume for volume in pod("ps-0")["spec"]["volumes"] if volume["name"] == "keys"]
    assert [item["path"] for item in keys["secret"]["items"]] == ["public.json", "ps.key"]
    (keys,) = [
        volume for volume in pod("worker-0", **ALLREDUCE)["spec"]["volumes"] if volume["name"] == "keys"
    ]
    assert [item["path"] for item in keys["secret"]["items"]] == ["public.json", "worker.key"]
    without = pod("worker-0", transport_security="none")
    assert "/var/run/edlz/keys" not in mounts(without)
    assert "--transport_security=none" in container(without)["command"]


@pytest.mark.parametrize("job_dir", ["", "/data/jobs/mnist"], ids=["scratch", "volume"])
def test_the_masters_secret_key_lies_where_no_other_pod_looks(job_dir: str) -> None:
    """All pods of a job mount its volumes, as one user: a file's mode keeps none of them out."""
    pod_of_master = master(job_dir=job_dir)
    assert "--keys_dir=/var/run/edlz/keys/job" in container(pod_of_master)["command"]
    assert mounts(pod_of_master)["/var/run/edlz/keys"] == "keys"
    (keys,) = [volume for volume in pod_of_master["spec"]["volumes"] if volume["name"] == "keys"]
    assert keys["emptyDir"]["medium"] == "Memory"
    assert "/var/run/edlz/keys" not in mounts(master(transport_security="none"))


@pytest.mark.parametrize(
    ("changes", "paths"),
    [
        ({}, {"/tmp", "/var/lib/edlz/job", "/data"}),
        ({"volume": ""}, {"/tmp", "/var/lib/edlz/job"}),
        ({"volume": "claim_name=c,mount_path=/tmp"}, {"/tmp", "/var/lib/edlz/job"}),
        ({"checkpoint_dir": "/data/ckpt"}, {"/tmp", "/var/lib/edlz/job", "/data"}),
        ({"checkpoint_dir": "/ckpt"}, {"/tmp", "/var/lib/edlz/job", "/ckpt", "/data"}),
        ({"checkpoint_dir": "/tmp/ckpt"}, {"/tmp", "/var/lib/edlz/job", "/data"}),
        ({"job_dir": "/data/jobs/mnist"}, {"/tmp", "/data"}),
        ({"job_dir": "/home/me/jobs"}, {"/tmp", "/var/lib/edlz/job", "/data"}),
        ({"log_file_path": "/logs/x.log"}, {"/tmp", "/var/lib/edlz/job", "/logs", "/data"}),
        ({"log_file_path": "/data/$(MY_POD_NAME).log"}, {"/tmp", "/var/lib/edlz/job", "/data"}),
    ],
)
def test_each_folder_that_is_written_to_is_a_mount(changes: dict[str, Any], paths: set[str]) -> None:
    assert set(mounts(master(**changes))) == paths | {"/var/run/edlz/keys"}
    assert set(mounts(pod("ps-0", **changes))) == paths | {"/var/run/edlz/keys"}


@pytest.mark.parametrize(
    ("changes", "is_saved"),
    [
        ({}, False),
        ({"checkpoint_dir": "/ckpt"}, False),
        ({"checkpoint_dir": "/data/ckpt"}, True),
        ({"job_dir": "/data/jobs/mnist"}, True),
        ({"num_ps_pods": 0}, True),
        (ALLREDUCE, False),
        ({**ALLREDUCE, "checkpoint_dir": "/data/ckpt"}, True),
    ],
)
def test_checkpoints_are_saved_where_all_of_the_job_see_them(changes: dict[str, Any], is_saved: bool) -> None:
    command = container(master(checkpoint_steps=2, **changes))["command"]
    assert ("--checkpoint_steps=2" in command) is is_saved


@pytest.mark.parametrize(
    ("changes", "checkpoints"),
    [
        ({"job_dir": "/data/jobs/mnist"}, None),  # what the partitions seal lies where the workers see it
        ({}, "/data/out/mnist.checkpoints"),
        ({"num_ps_pods": 0}, "/data/out/mnist.checkpoints"),
        (ALLREDUCE, "/data/out/mnist.checkpoints"),
        ({"checkpoint_dir": "/data/ckpt"}, "/data/ckpt"),
    ],
)
def test_a_model_is_exported_from_what_the_workers_see(
    changes: dict[str, Any], checkpoints: str | None
) -> None:
    config = settings_in_pods(job(output="/data/out/mnist", **changes), "edlz:mnist")
    assert config.export_from_checkpoint is (checkpoints is not None)
    assert config.checkpoint_dir == (checkpoints or "")
    assert settings_in_pods(config, "edlz:mnist") == config
    command = container(master(output="/data/out/mnist", **changes))["command"]
    assert "--output=/data/out/mnist" in command
    assert ("--export_from_checkpoint=yes" in command) is (checkpoints is not None)


def test_members_keep_states_where_all_of_them_see_them() -> None:
    def is_private(**changes: Any) -> bool:
        return "--private_job_dir=yes" in container(master(**changes))["command"]

    assert is_private(**ALLREDUCE)
    assert not is_private(**ALLREDUCE, job_dir="/data/jobs/mnist")
    assert is_private()  # a stop that saves no checkpoint leaves nothing


def test_output_goes_to_a_file_too() -> None:
    command = container(pod("ps-0", log_file_path="/data/$(MY_POD_NAME).log"))["command"]
    assert command[2:6] == ["edlz.k8s.log_copy", "--file=/data/$(MY_POD_NAME).log", "--", "python"]


def test_the_job_directory_can_lie_on_a_volume() -> None:
    command = container(pod("ps-0", job_dir="/data/jobs/mnist"))["command"]
    assert "--job_dir=/data/jobs/mnist" in command
