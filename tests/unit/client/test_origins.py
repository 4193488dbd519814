"""Where a job's settings come from, as its page tells it: the same on this machine and on a cluster."""

from dataclasses import replace
from pathlib import Path

import pytest

from edlz.client.job_files.preflight import Preflight
from edlz.client.job_files.resumption import resumed_settings
from edlz.client.local.job_directory import open_job_directory
from edlz.client.local.run import service_command
from edlz.k8s.cluster.manifest import to_plain
from edlz.k8s.objects.pods import master_pod
from edlz.services.configuration.arguments import read_config
from edlz.services.configuration.job_config import NO_LIMIT, JobConfig
from edlz.services.configuration.origins import origins_after
from edlz.services.master.page.settings_table import command_to_repeat, settings_rows
from edlz.services.master.planning import open_journal, with_origins_of
from tests.builders import settings_in

PLACES = ["local", "pod"]
STRATEGIES = ["ParameterServerStrategy", "AllreduceStrategy"]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def as_master(config: JobConfig, place: str) -> JobConfig:
    """Return a job's settings as its master reads them from the arguments that it is started with."""
    if place == "local":
        with open_job_directory(config) as folder:
            arguments = service_command(config, folder, "master")[3:]
    else:
        pod = to_plain(master_pod(config, config.image_name))
        arguments = pod["spec"]["containers"][0]["command"][3:]
    return read_config(arguments, "master", {}).checked()


def origins(config: JobConfig) -> dict[str, str]:
    return {row["name"]: row["origin"].partition(",")[0] for row in settings_rows(config)}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_master_knows_where_each_setting_comes_from(place: str, strategy: str) -> None:
    Path("my;job.yaml").write_text("num_epochs: 3\nminibatch_size: 16\n")
    image = [] if place == "local" else ["--image_name=edlz:mnist"]
    argv = ["--config=my;job.yaml", "--model_def=a.b", "--training_data=x", "--minibatch_size=32", *image]
    reading = read_config([*argv, f"--distribution_strategy={strategy}"], "train", {"EDLZ_SEED": "7"})
    master = as_master(reading.checked(), place)

    found = origins(master)
    told = {name: found.pop(name) for name in ("seed", "num_epochs", "model_def", "training_data")}
    assert told == {
        "seed": "EDLZ_SEED",
        "num_epochs": "my;job.yaml:1",
        "model_def": "command line",
        "training_data": "command line",
    }
    given = {"minibatch_size", *(["image_name"] if image else ()), "distribution_strategy"}
    given &= set(found)  # one strategy is the default
    assert {name for name, origin in found.items() if origin == "command line"} == given
    assert {found[name] for name in found.keys() - given} == {"worked out"}
    assert {"records_per_task", "job_dir"} <= found.keys() - given
    assert ("num_ps_pods" in found) == (strategy == "AllreduceStrategy")

    words = command_to_repeat(master).split()
    assert sorted(words[2:]) == sorted(
        [
            "--model_def=a.b",
            "--training_data=x",
            "--minibatch_size=32",
            "--num_epochs=3",
            "--seed=7",
            *image,
            *([f"--distribution_strategy={strategy}"] if "distribution_strategy" in given else []),
        ]
    )


def test_the_command_for_a_cluster_names_the_image_that_was_built_for_the_job() -> None:
    """Without an image it would run on this machine; what the image was built on the master does not know."""
    argv = ["--model_def=a.b", "--training_data=x", "--image_base=edlz:1"]
    config = read_config(argv, "train", {}).checked()
    pod = to_plain(master_pod(config, "registry.example/mnist:2"))
    master = read_config(pod["spec"]["containers"][0]["command"][3:], "master", {}).checked()
    assert origins(master)["image_name"] == "worked out"
    assert "--image_name=registry.example/mnist:2" in command_to_repeat(master).split()


def test_what_holds_in_pods_instead_of_what_was_given_was_worked_out() -> None:
    argv = ["--model_def=a.b", "--training_data=x", "--image_name=i", "--job_dir=here", "--status_port=0"]
    master = as_master(read_config(argv, "train", {}).checked(), "pod")
    found = origins(master)
    assert (found["job_dir"], found["status_port"]) == ("worked out", "worked out")
    assert command_to_repeat(master) == "edlz train --model_def=a.b --training_data=x --image_name=i"


def test_a_master_that_is_started_by_hand_was_given_its_arguments() -> None:
    argv = ["--model_def=a.b", "--training_data=x", "--num_workers=4"]
    master = read_config(argv, "master", {"EDLZ_SEED": "3"}).checked()
    found = origins(master)
    assert (found["num_workers"], found["seed"]) == ("command line", "EDLZ_SEED")
    assert found["records_per_task"] == "worked out"


def test_a_variable_of_its_own_counts_before_what_a_master_was_told() -> None:
    config = read_config(["--model_def=a.b", "--training_data=x"], "train", {}).checked()
    master = read_config(config.to_arguments("master"), "master", {"EDLZ_SEED": "3"}).checked()
    assert (origins(master)["seed"], origins(master)["model_def"]) == ("EDLZ_SEED", "command line")


@pytest.mark.parametrize("more", [["--num-workers", "5"], []])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_resumed_job_keeps_its_origins(tmp_path: Path, strategy: str, more: list[str]) -> None:
    """Its settings are read from the file that it has kept, in which all of them stand."""
    here = settings_in(tmp_path)
    argv = [f"--training_data={here.training_data}", "--model_def=a.b", "--num_workers=3", "--job_name=j"]
    argv += [f"--distribution_strategy={strategy}", f"--job_dir={here.job_dir}"]
    first = read_config(argv, "train", {"EDLZ_SEED": "7"}).checked()
    with open_job_directory(first) as folder:
        begun = as_resumed(service_command(first, folder, "master")[3:])
        kept, own = folder.path / "job.yaml", [f"--job_dir={folder.path}"]
        goes_on = replace(resumed_settings(kept, more, own, lambda _: Preflight()), resume=True)
        resumed = as_resumed(service_command(goes_on, folder, "master")[3:])
    assert origins(resumed) == origins(begun)
    workers = f"num_workers={more[-1] if more else 3}"
    assert command_to_repeat(resumed) == command_to_repeat(begun).replace("num_workers=3", workers)
    assert origins(resumed)["seed"] == "EDLZ_SEED"
    assert origins(resumed)["records_per_task"] == "worked out"


def as_resumed(arguments: list[str]) -> JobConfig:
    """Return the settings as a master shows them that has opened the job's journal."""
    config = read_config(arguments, "master", {}).checked()
    journal, job = open_journal(config, config.job_directory)
    with journal:
        shown = with_origins_of(config, job)
    assert origins(JobConfig.from_record(job.config)) == origins(shown), "a report left behind says the same"
    return shown


def test_a_setting_that_gave_way_was_not_given() -> None:
    """A job goes on without the parameter servers that it was given."""
    before = JobConfig(origins="num_ps_pods=;seed=EDLZ_SEED", num_ps_pods=2, seed=7)
    now = JobConfig(origins="distribution_strategy=", distribution_strategy="AllreduceStrategy", seed=7)
    assert origins_after(now, before) == "seed=EDLZ_SEED;distribution_strategy="


def test_no_limit_is_no_number_to_repeat() -> None:
    """The file that a job keeps holds it, and may be given to another one."""
    Path("job.yaml").write_text(
        f"distribution_strategy: AllreduceStrategy\nembedding_threshold_bytes: {NO_LIMIT}\n"
    )
    argv = ["--config=job.yaml", "--model_def=a.b", "--training_data=x"]
    master = as_master(read_config(argv, "train", {}).checked(), "local")
    values = {row["name"]: row["value"] for row in settings_rows(master)}
    assert values["embedding_threshold_bytes"] == "no limit"
    assert "embedding" not in command_to_repeat(master)
