"""JobConfig: every flag once, with derived values and the forms in which it travels."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edlz.services.configuration.arguments import read_config
from edlz.services.configuration.flags import GROUPS, LATER_FLAGS, READERS
from edlz.services.configuration.job_config import (
    MAX_JOB_NAME,
    JobConfig,
    flags,
    flags_by_spelling,
    legal_job_name,
)
from edlz.services.configuration.model_params import parse_model_params
from edlz.services.errors import ConfigError, RemoteProtocolError

MNIST = JobConfig(model_def="mnist.mnist_functional_api.custom_model", training_data="data/mnist/train")


def test_derived_values_follow_from_the_others() -> None:
    config = dataclasses.replace(MNIST)
    assert config.job_name == "mnist-functional-api"
    assert config.records_per_task == 64 * 8
    assert config.grads_to_wait == config.num_workers == 2
    assert config.worker_threads >= 1


def test_given_values_win_over_derived_ones() -> None:
    config = JobConfig(records_per_task=100, grads_to_wait=3, worker_threads=7, job_name="test")
    assert (config.records_per_task, config.grads_to_wait, config.worker_threads) == (100, 3, 7)
    assert config.job_name == "test"


def test_async_waits_for_one_gradient_and_no_worker_still_leaves_one_slot() -> None:
    assert JobConfig(use_async=True, num_workers=4).grads_to_wait == 1
    assert JobConfig(num_workers=0).grads_to_wait == 1


@pytest.mark.parametrize(
    ("model_def", "model_file", "name"),
    [
        ("mnist.mnist_functional_api.custom_model", "", "mnist-functional-api"),
        ("examples/mnist_subclass", "", "mnist-subclass"),
        ("examples/mnist_subclass/", "", "mnist-subclass"),
        ("", "models/My_Net.py", "my-net"),
        ("", "", "job"),
    ],
)
def test_job_name_follows_from_the_model(model_def: str, model_file: str, name: str) -> None:
    assert JobConfig(model_def=model_def, model_file=model_file).job_name == name


@given(st.text())
def test_legal_job_names_are_legal(text: str) -> None:
    name = legal_job_name(text)
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert 1 <= len(name) <= MAX_JOB_NAME
    assert name[0] != "-" != name[-1]
    assert legal_job_name(name) == name


def test_a_record_goes_there_and_back() -> None:
    config = dataclasses.replace(MNIST, use_async=True, recovery_snapshot_secs=2.5, onednn=False)
    record = config.to_record()
    assert all(isinstance(value, str | int | float | bool | None) for value in record.values())
    assert JobConfig.from_record(record) == config


def test_a_record_of_a_later_version_is_read_without_its_new_keys() -> None:
    assert JobConfig.from_record({"seed": 3, "new_flag": "x"}).seed == 3


@pytest.mark.parametrize(
    "record", [{"seed": "3"}, {"seed": True}, {"use_async": 1}, {"loss": None}, {"seed": 1.5}]
)
def test_a_record_with_a_wrong_type_is_refused(record: dict[str, str | int | float | bool | None]) -> None:
    with pytest.raises(RemoteProtocolError, match=next(iter(record))):
        JobConfig.from_record(record)


def test_a_worker_keeps_what_it_was_given_and_takes_the_rest_from_the_job() -> None:
    own = read_config(["--worker_id=3", "--model_file=here/model.py"], "worker", {}).config
    job = dataclasses.replace(
        MNIST, model_def="", model_file="there/model.py", codec_type="tf_example", seed=5
    )
    joined = own.joined_with(job.to_record())
    assert (joined.model_file, joined.worker_id) == ("here/model.py", 3)
    assert (joined.codec_type, joined.seed) == ("tf_example", 5)


def test_arguments_that_start_a_service_give_the_same_configuration() -> None:
    config = dataclasses.replace(
        MNIST, num_workers=3, grads_to_wait=3, use_async=False, onednn=False, seed=7, checkpoint_steps=2
    )
    again = read_config(config.to_arguments("master"), "master", {})
    assert again.errors == ()
    assert again.config == config


def test_the_yaml_repeats_the_job(tmp_path: Path) -> None:
    config = dataclasses.replace(MNIST, num_epochs=2, model_params="units=3;name='a: b #c'", worker_threads=5)
    path = tmp_path / "job.yaml"
    path.write_text(config.to_yaml(), encoding="utf-8")
    again = read_config([f"--config={path}"], "train", {})
    assert again.errors == ()
    assert dataclasses.replace(again.config, config="") == config


def test_endpoints_of_services_started_by_hand() -> None:
    assert JobConfig().listen_endpoint == "tcp://127.0.0.1:50001"
    assert JobConfig(port=0).listen_endpoint == "tcp://127.0.0.1:*"
    assert JobConfig(endpoint="ipc:///tmp/x").listen_endpoint == "ipc:///tmp/x"
    assert JobConfig(master_addr="host:1").master_endpoint == "tcp://host:1"
    assert JobConfig(master_addr="ipc:///tmp/x").master_endpoint == "ipc:///tmp/x"


def test_the_jobs_folder_lies_in_edlz_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path))
    assert JobConfig(job_name="a").job_directory == tmp_path / "jobs" / "a"
    assert JobConfig(job_name="a", job_dir="/else").job_directory == Path("/else")


def test_every_flag_is_described_well() -> None:
    spellings = [spelling for about in flags() for spelling in about.spellings]
    assert len(spellings) == len(set(spellings)) == len(flags_by_spelling())
    for about in flags():
        assert about.group in GROUPS, about.name
        assert about.readers <= set(READERS), about.name
        assert about.required_by <= about.readers, about.name
        assert 0 < len(about.help) <= 44, about.name
        assert bool(about.metavar) == (about.kind != "yes or no"), about.name
        assert about.name not in LATER_FLAGS, about.name
        assert set(about.later) <= set(about.choices), about.name


def test_every_later_flag_has_a_reason() -> None:
    assert all(LATER_FLAGS.values())
    assert {"volume_name", "task_fault_tolerance", "callbacks"} <= set(LATER_FLAGS)


def test_model_params_are_literals() -> None:
    assert parse_model_params("units=64;rate=0.5;name='a;b';on=True;shape=(2, 3);") == {
        "units": 64,
        "rate": 0.5,
        "name": "a;b",
        "on": True,
        "shape": (2, 3),
    }
    assert parse_model_params("") == {}


@pytest.mark.parametrize("text", ["units", "2x=1", "f=print('x')", "name=relu", "a=[", "a="])
def test_model_params_that_are_no_literals_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--model_params"):
        parse_model_params(text)
