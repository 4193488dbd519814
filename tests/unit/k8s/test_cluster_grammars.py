"""The grammars of the cluster flags: what they take, and errors that say which part is wrong."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edlz.k8s.flags.envs import parse_env_names, parse_envs, populated_envs
from edlz.k8s.flags.priorities import next_worker_class, pod_priority, priority_classes
from edlz.k8s.flags.resources import (
    bytes_of,
    cores_of,
    limits_of,
    memory_quantity,
    number_of,
    parse_resources,
    requests_of,
    resource_problems,
)
from edlz.k8s.flags.volumes import Mount, Volume, parse_volumes
from edlz.k8s.objects.worker_memory import more_memory, with_memory
from edlz.services.configuration.job_config import JobConfig
from edlz.services.configuration.problems import InvalidConfigError

FLAG = "worker_resource_request"
WORD = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)


def problems_of(parse: Callable[[], Any]) -> list[tuple[str, str]]:
    with pytest.raises(InvalidConfigError) as raised:
        parse()
    return [(problem.message, problem.help) for problem in raised.value.problems]


def only_problem(parse: Callable[[], Any]) -> tuple[str, str]:
    (problem,) = problems_of(parse)
    return problem


# ---------------------------------------------------------------- quantities


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        ("0.1", Fraction(1, 10)),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("100m", Fraction(1, 10)),
        ("1k", 1000),
        ("1Ki", 1024),
        ("1.5Gi", 3 << 29),
        ("12E", 12 * 10**18),
        ("12e3", 12000),
        ("1E3", 1000),
        ("-2", -2),
    ],
)
def test_a_quantity_is_a_number(text: str, number: Fraction) -> None:
    assert number_of(text) == number


@pytest.mark.parametrize("text", ["", "1K", "1 Gi", "Gi", "1gb", "1ki", "0x1", "1e", ".", "nan", "1m5"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        number_of(text)


def test_memory_and_cores_as_numbers() -> None:
    assert bytes_of("1024Mi") == 1 << 30
    assert bytes_of("0.3") == 1
    assert cores_of("100m") == 0.1
    assert memory_quantity((1 << 30) + 1) == "1025Mi"


@given(st.integers(1, 1 << 50))
def test_a_number_of_bytes_fits_into_its_quantity(size_bytes: int) -> None:
    assert size_bytes <= bytes_of(memory_quantity(size_bytes)) < size_bytes + (1 << 20)


# ---------------------------------------------------------------- resources


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("cpu=1,memory=4096Mi", {"cpu": "1", "memory": "4096Mi"}),
        (" cpu = 0.2 , memory = 1.5Gi ", {"cpu": "0.2", "memory": "1.5Gi"}),
        ("cpu=250m", {"cpu": "250m"}),
        ("memory=5K", {"memory": "5k"}),
        ("memory=5Ki", {"memory": "5Ki"}),
        ("ephemeral-storage=5000Mi", {"ephemeral-storage": "5000Mi"}),
        ("disk=5G", {"ephemeral-storage": "5G"}),
        ("gpu=2", {"nvidia.com/gpu": "2"}),
        ("amd.com/gpu=1", {"amd.com/gpu": "1"}),
        ("nvidia.com/mig-1g.5gb=1", {"nvidia.com/mig-1g.5gb": "1"}),
    ],
)
def test_resources(text: str, found: dict[str, str]) -> None:
    assert parse_resources(text, FLAG) == found


@pytest.mark.parametrize(
    ("text", "message", "help_line"),
    [
        ("cpu", '"cpu" is not name=value', f"e.g. --{FLAG}=cpu=1,memory=4096Mi"),
        ("cpu=1,", "a part is empty", f"e.g. --{FLAG}=cpu=1,memory=4096Mi"),
        ("cpu=", '"cpu=": "" is no number of cores', "e.g. cpu=0.5 or cpu=500m"),
        ("cpu=1.5m", '"cpu=1.5m": "1.5m" is no number of cores', "e.g. cpu=0.5 or cpu=500m"),
        ("cpu=inf", '"cpu=inf": "inf" is no number of cores', "e.g. cpu=0.5 or cpu=500m"),
        ("cpu=0", '"cpu=0": no pod runs without cpu', "e.g. cpu=0.5 or cpu=500m"),
        ("cpu=0.0005", '"cpu=0.0005": finer than a thousandth of a core', "e.g. cpu=1m"),
        ("memory=4096", '"memory=4096": "4096" has no unit', "e.g. memory=4096Mi"),
        (
            "memory=4gb",
            '"memory=4gb": "4gb" is no size: a number with k M G T P E or Ki Mi Gi Ti Pi Ei',
            "e.g. memory=4096Mi",
        ),
        ("memory=0Mi", '"memory=0Mi": less than a byte', "e.g. memory=4096Mi"),
        ("gpu=0.5", '"gpu=0.5": "0.5" is no number of devices', "e.g. gpu=1"),
        (
            "memroy=1Gi",
            '"memroy=1Gi": "memroy" is no resource',
            "did you mean memory? (allowed: VENDOR.DOMAIN/gpu, cpu, disk, ephemeral-storage, gpu, memory)",
        ),
        (
            "example.com/fpga=1",
            '"example.com/fpga=1": "example.com/fpga" is no device: VENDOR.DOMAIN/gpu or nvidia.com/NAME',
            "e.g. amd.com/gpu=1",
        ),
        ("cpu=1,cpu=2", '"cpu=2": cpu stands there twice', "drop one of the two"),
        (
            "gpu=1,nvidia.com/gpu=1",
            '"nvidia.com/gpu=1": nvidia.com/gpu stands there twice',
            "drop one of the two",
        ),
        (
            "disk=1G,ephemeral-storage=1G",
            '"ephemeral-storage=1G": ephemeral-storage stands there twice',
            "drop one of the two",
        ),
    ],
)
def test_an_error_names_the_part_of_the_resources(text: str, message: str, help_line: str) -> None:
    assert only_problem(lambda: parse_resources(text, FLAG)) == (f"--{FLAG}: {message}", help_line)


def test_all_parts_that_are_wrong_are_told_at_once() -> None:
    assert len(problems_of(lambda: parse_resources("cpu=x,memory=1Gi,disk=2", FLAG))) == 2


@given(st.dictionaries(st.sampled_from(["cpu", "memory", "disk"]), st.integers(1, 10**6), min_size=1))
def test_what_is_parsed_is_what_was_written(amounts: dict[str, int]) -> None:
    text = " , ".join(f"{name}={n}{'m' if name == 'cpu' else 'Mi'}" for name, n in amounts.items())
    found = parse_resources(text, FLAG)
    assert {name: int(value.rstrip("Mim")) for name, value in found.items()} == {
        name.replace("disk", "ephemeral-storage"): n for name, n in amounts.items()
    }


def test_limits_default_to_the_request() -> None:
    config = JobConfig(worker_resource_request="cpu=1,memory=1Gi", ps_resource_limit="memory=8Gi")
    assert limits_of(config, "worker") == requests_of(config, "worker") == {"cpu": "1", "memory": "1Gi"}
    assert limits_of(config, "ps") == {"memory": "8Gi"}


def test_a_device_has_a_limit_even_if_another_limit_is_given() -> None:
    config = JobConfig(worker_resource_request="cpu=1,gpu=2", worker_resource_limit="cpu=2")
    assert limits_of(config, "worker") == {"cpu": "2", "nvidia.com/gpu": "2"}


@pytest.mark.parametrize(
    ("settings", "message", "help_line"),
    [
        (
            {"worker_resource_request": "cpu=2", "worker_resource_limit": "cpu=1500m"},
            "--worker_resource_request: cpu=2 exceeds the limit of 1500m",
            "--worker_resource_limit with cpu=2, or a request of 1500m",
        ),
        (
            {"ps_resource_request": "gpu=1", "ps_resource_limit": "gpu=2"},
            "--ps_resource_request: nvidia.com/gpu=1 is not the limit of 2",
            "--ps_resource_limit with nvidia.com/gpu=1, or a request of 2",
        ),
        (
            {"max_worker_memory": "2Gi"},
            "--max_worker_memory: 2Gi is less than a worker's memory of 4096Mi",
            "--max_worker_memory=4096Mi or more",
        ),
        (
            {"max_worker_memory": "8192"},
            '--max_worker_memory: "8192": "8192" has no unit',
            "e.g. --max_worker_memory=8192Mi",
        ),
    ],
)
def test_requests_and_limits_fit_together(settings: dict[str, str], message: str, help_line: str) -> None:
    config = JobConfig(**settings)  # type: ignore[arg-type]
    (problem,) = resource_problems(config)
    assert (problem.message, problem.help) == (message, help_line)


# ---------------------------------------------------------------- memory of a worker


def test_a_worker_out_of_memory_gets_more_up_to_twice_its_limit() -> None:
    config = JobConfig(worker_resource_request="cpu=1,memory=1000Mi")
    assert more_memory(config, None) == "1500Mi"
    assert more_memory(config, "1500Mi") == "2000Mi"
    assert more_memory(config, "2000Mi") == "2000Mi"
    assert more_memory(JobConfig(worker_resource_request="cpu=1"), None) is None


def test_the_cap_can_be_given() -> None:
    config = JobConfig(worker_resource_request="cpu=1,memory=1000Mi", max_worker_memory="1200Mi")
    assert more_memory(config, None) == "1200Mi"


def test_the_request_grows_as_the_limit_does() -> None:
    assert with_memory({"memory": "1Gi"}, {"memory": "1Gi"}, "1536Mi") == (
        {"memory": "1536Mi"},
        {"memory": "1536Mi"},
    )
    assert with_memory({"memory": "1Gi"}, {"memory": "2Gi"}, "3Gi") == (
        {"memory": "1536Mi"},
        {"memory": "3Gi"},
    )
    assert with_memory({"memory": "1Gi"}, {"cpu": "1"}, "3Gi") == ({"memory": "3Gi"}, {"cpu": "1"})


# ---------------------------------------------------------------- volumes


def test_the_three_ages_of_volumes() -> None:
    host = parse_volumes("host_path=/data,mount_path=/data")
    assert host.volumes == (Volume("volume-0", host_path="/data"),)
    assert host.mounts == (Mount("volume-0", "/data"),)
    claim = parse_volumes("volume_name=data-volume,mount_path=/data,claim_name=fileserver-claim")
    assert claim.volumes == (Volume("data-volume", claim_name="fileserver-claim"),)
    two = parse_volumes(
        "claim_name=c1,mount_path=/a,sub_path=x/y;host_path=/h,type=DirectoryOrCreate,mount_path=/h/;"
    )
    assert two.volumes == (
        Volume("volume-0", claim_name="c1"),
        Volume("volume-1", host_path="/h", host_path_type="DirectoryOrCreate"),
    )
    assert two.mounts == (Mount("volume-0", "/a", "x/y"), Mount("volume-1", "/h"))


def test_a_claim_that_stands_there_twice_is_one_volume() -> None:
    found = parse_volumes(
        "claim_name=c,mount_path=/a,sub_path=a;claim_name=c,mount_path=/b,volume_name=both;"
        "claim_name=d,mount_path=/d"
    )
    assert [volume.name for volume in found.volumes] == ["both", "volume-0"]
    assert [(mount.volume, mount.mount_path) for mount in found.mounts] == [
        ("both", "/a"),
        ("both", "/b"),
        ("volume-0", "/d"),
    ]


def test_a_name_that_is_given_is_not_made_up_again() -> None:
    found = parse_volumes("claim_name=a,mount_path=/a;claim_name=b,mount_path=/b,volume_name=volume-0")
    assert [volume.name for volume in found.volumes] == ["volume-1", "volume-0"]


def test_what_lies_on_a_volume() -> None:
    found = parse_volumes("claim_name=c,mount_path=/data")
    assert found.holds("/data")
    assert found.holds("/data/mnist/train")
    assert not found.holds("/database")
    assert not parse_volumes("").holds("/data")


EXAMPLE = "e.g. --volume=claim_name=mnist,mount_path=/data"


@pytest.mark.parametrize(
    ("text", "message", "help_line"),
    [
        ("claim_name=c", '"claim_name=c": no mount_path', EXAMPLE),
        ("mount_path=/a", '"mount_path=/a": neither claim_name nor host_path', "give one of the two"),
        (
            "claim_name=c,host_path=/h,mount_path=/a",
            '"claim_name=c,host_path=/h,mount_path=/a": both claim_name and host_path',
            "give one of the two",
        ),
        ("claim_name,mount_path=/a", '"claim_name" is not key=value', EXAMPLE),
        ("claim_name=c,,mount_path=/a", '"claim_name=c,,mount_path=/a": an item is empty', EXAMPLE),
        (
            "claim_name=c,mount_paht=/a",
            '"mount_paht=/a": no key "mount_paht" in a volume',
            "did you mean mount_path? "
            "(allowed: claim_name, host_path, mount_path, sub_path, type, volume_name)",
        ),
        (
            "claim_name=c,mount_path=/a,mount_path=/b",
            '"mount_path=/b": mount_path stands there twice',
            'separate volumes by ";", with quotes around all',
        ),
        ("claim_name=c,mount_path=a", '"mount_path=a" is no absolute path', "mount_path=/a"),
        (
            "claim_name=c,mount_path=/a:b",
            '"mount_path=/a:b": ":" has no place in it',
            "e.g. mount_path=/data",
        ),
        (
            "host_path=/a/../b,mount_path=/a",
            '"host_path=/a/../b": ".." has no place in it',
            "e.g. host_path=/data",
        ),
        ("claim_name=c,mount_path=//", '"mount_path=//" would hide the image', "e.g. mount_path=/data"),
        (
            "claim_name=c,mount_path=/a,type=Directory",
            '"claim_name=c,mount_path=/a,type=Directory": type is for host_path only',
            "drop type",
        ),
        (
            "host_path=/h,mount_path=/a,type=Directry",
            '"type=Directry" is no type of a host path',
            "did you mean Directory? (allowed: BlockDevice, CharDevice, Directory, "
            "DirectoryOrCreate, File, FileOrCreate, Socket)",
        ),
        (
            "claim_name=C_1,mount_path=/a",
            '"claim_name=C_1" is no name of a claim: a-z, 0-9, - and ., at most 253 letters',
            "kubectl get pvc lists the claims",
        ),
        (
            "claim_name=c,mount_path=/a,volume_name=tmp",
            '"volume_name=tmp" is taken by edlz (at most 63 letters)',
            "e.g. volume_name=data",
        ),
        (
            "claim_name=c,mount_path=/a,sub_path=../x",
            '"sub_path=../x" is no path inside the volume',
            "e.g. sub_path=mnist/train",
        ),
        (
            "claim_name=c,mount_path=/a;claim_name=d,mount_path=/a/",
            '"claim_name=d,mount_path=/a/": something else is mounted at "/a/"',
            "give each mount a path of its own",
        ),
        (
            "claim_name=c,mount_path=/a,volume_name=x;claim_name=d,mount_path=/b,volume_name=x",
            '"claim_name=d,mount_path=/b,volume_name=x": volume_name "x" is that of another volume',
            "give each volume a name of its own",
        ),
        (
            "claim_name=c,mount_path=/a,volume_name=x;claim_name=c,mount_path=/b,volume_name=y",
            '"claim_name=c,mount_path=/b,volume_name=y": the same volume has volume_name=x before',
            "give it one volume_name",
        ),
    ],
)
def test_an_error_names_the_part_of_the_volumes(text: str, message: str, help_line: str) -> None:
    assert only_problem(lambda: parse_volumes(text)) == (f"--volume: {message}", help_line)


@given(st.lists(st.tuples(WORD, WORD), max_size=4, unique_by=lambda pair: pair[1]))
def test_each_mount_has_its_volume(pairs: list[tuple[str, str]]) -> None:
    found = parse_volumes(";".join(f"claim_name={claim},mount_path=/{path}" for claim, path in pairs))
    claims = {volume.name: volume.claim_name for volume in found.volumes}
    assert len(claims) == len(found.volumes) == len({claim for claim, _ in pairs})
    assert [(claims[mount.volume], mount.mount_path) for mount in found.mounts] == [
        (claim, f"/{path}") for claim, path in pairs
    ]


# ---------------------------------------------------------------- environment


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("A=1", {"A": "1"}),
        ("A=1,B=2", {"A": "1", "B": "2"}),
        ("A=1,2,B=3", {"A": "1,2", "B": "3"}),
        ("A=1,B", {"A": "1,B"}),
        ("A=", {"A": ""}),
        ("A=x=y,B=2", {"A": "x=y", "B": "2"}),
        ("A==", {"A": "="}),
        ("A=1, B=2", {"A": "1", "B": "2"}),
        ("A=,B=", {"A": "", "B": ""}),
    ],
)
def test_envs(text: str, found: dict[str, str]) -> None:
    assert parse_envs(text) == found


@given(st.dictionaries(WORD, st.text(st.characters(exclude_characters="="), max_size=8), min_size=1))
def test_a_comma_may_stand_in_a_value(envs: dict[str, str]) -> None:
    assert parse_envs(",".join(f"{name}={value}" for name, value in envs.items())) == envs


@pytest.mark.parametrize(
    ("text", "message", "help_line"),
    [
        ("A", '"A" is not name=value', "e.g. --envs=LEVEL=2,PATHS=/a,/b"),
        (
            "=1",
            '"=1": "" is no name of a variable: letters, digits, _, - and .',
            "e.g. --envs=LEVEL=2,PATHS=/a,/b",
        ),
        (
            "A=1,2B=3",
            '"2B=3": "2B" is no name of a variable: letters, digits, _, - and .',
            "e.g. --envs=LEVEL=2,PATHS=/a,/b",
        ),
        ("A=1,A=2", '"A=2": A stands there twice', "drop one of the two"),
        ("WORKER_ID=1", '"WORKER_ID=1": WORKER_ID is set by edlz itself', "leave it out"),
    ],
)
def test_an_error_names_the_part_of_the_envs(text: str, message: str, help_line: str) -> None:
    assert only_problem(lambda: parse_envs(text)) == (f"--envs: {message}", help_line)


def test_variables_of_the_master_whose_whole_name_matches() -> None:
    environ = {"NCCL_DEBUG": "1", "MY_NCCL_X": "2", "HOSTNAME": "m", "MY_POD_IP": "1.2.3.4", "A": "3"}
    assert populated_envs("NCCL_.*|A", environ) == {"A": "3", "NCCL_DEBUG": "1"}
    assert populated_envs(".*", environ) == {"A": "3", "MY_NCCL_X": "2", "NCCL_DEBUG": "1"}
    assert populated_envs("", environ) == {}


def test_an_error_in_a_regular_expression_says_where() -> None:
    assert only_problem(lambda: parse_env_names("NCCL_(")) == (
        '--populate_env_names: "NCCL_(" is no regular expression: missing ), unterminated subpattern at letter 6',
        "e.g. --populate_env_names=NCCL_.*",
    )


# ---------------------------------------------------------------- priorities


def test_the_class_of_each_pod() -> None:
    config = JobConfig(
        num_workers=4, worker_pod_priority="high=0.5", master_pod_priority="top", ps_pod_priority="middle"
    )
    assert [pod_priority(config, f"worker-{i}") for i in range(4)] == ["high", "high", "low", "low"]
    assert pod_priority(config, "worker-4") == "high"
    assert (pod_priority(config, "master"), pod_priority(config, "ps-1")) == ("top", "middle")
    assert priority_classes(config) == ("top", "middle", "high", "low")
    assert pod_priority(JobConfig(), "worker-0") == ""


def test_a_parameter_server_goes_no_sooner_than_its_master() -> None:
    config = JobConfig(master_pod_priority="top", worker_pod_priority="low")
    assert pod_priority(config, "ps-0") == "top"
    assert priority_classes(config) == ("top", "low")


def test_a_replacement_takes_the_class_that_is_missing() -> None:
    config = JobConfig(num_workers=4, worker_pod_priority="high=0.5")
    assert next_worker_class(config, 4, ["high", "low", "low"]) == "high"
    assert next_worker_class(config, 4, ["high", "high", "low"]) == "low"
    assert next_worker_class(config, 4, []) == "high"
    assert next_worker_class(config, 2, ["high", "low", "low"]) == "low"
    assert next_worker_class(JobConfig(worker_pod_priority="c"), 3, ["c"]) == "c"
