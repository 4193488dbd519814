"""`edlz evaluate` and `edlz predict`: their flags, what is refused, and what they hand over."""

import dataclasses
import sys
from pathlib import Path

import pytest

from edlz.api.recordio import Writer
from edlz.client.cli import main
from edlz.client.job_files.preflight import Preflight, check_job
from edlz.client.job_files.resumption import resumed_settings
from edlz.client.local import beginning as local
from edlz.services.configuration.arguments import Reading, read_config
from edlz.services.configuration.flags import Reader
from edlz.services.configuration.job_config import JobConfig
from edlz.services.master.planning import make_plan
from edlz.services.predictions.output import PredictionManifest, claim, publish
from tests.shown_jobs import Terminal

MODEL = """
def custom_model(): ...
def loss(labels, predictions): ...
def optimizer(): ...
def feed(dataset, mode, metadata): ...
def eval_metrics_fn(): ...
"""
EVALUATE = ("--model_def=a.b", "--validation_data=test", "--checkpoint_dir_for_init=ckpt")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("EDLZ_DEBUG", raising=False)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, and 1,000 records; checkpoints are not looked at."""
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "data").mkdir()
    with Writer(tmp_path / "data" / "part-0") as writer:
        for _ in range(1000):
            writer.write(b"x")
    (tmp_path / "ckpt").mkdir()
    monkeypatch.setattr("edlz.client.job_files.preflight._check_checkpoint", lambda config: iter(()))
    return tmp_path / "data"


def read(command: Reader, *argv: str) -> Reading:
    return read_config(argv, command, {})


def errors(command: Reader, *argv: str) -> list[tuple[str, str]]:
    return [(problem.message, problem.help) for problem in read(command, *argv).errors]


def test_what_each_command_needs() -> None:
    assert read("evaluate", *EVALUATE).errors == ()
    assert [message for message, _ in errors("evaluate")] == [
        "--model_def is missing",
        "--validation_data is missing",
        "--checkpoint_dir_for_init is missing",
    ]
    assert [message for message, _ in errors("predict", "--model_def=a.b")] == [
        "--prediction_data is missing",
        "--checkpoint_dir_for_init is missing",
    ]
    older = ("--evaluation_data_dir=test", "--init_from_checkpoint=ckpt")
    assert read("evaluate", "--model_def=a.b", *older).config.checkpoint_dir_for_init == "ckpt"


@pytest.mark.parametrize(
    ("command", "flag", "owner", "help_line"),
    [
        ("train", "prediction_data", "edlz predict", "for training: --training_data"),
        ("train", "prediction_data_dir", "edlz predict", "for training: --training_data"),
        ("evaluate", "training_data", "edlz train", "for evaluation: --validation_data"),
        ("predict", "training_data", "edlz train", "for prediction: --prediction_data"),
        ("predict", "validation_data", "edlz train", "for prediction: --prediction_data"),
        ("evaluate", "use_async", "edlz train", "leave it out"),
        ("train", "prediction_outputs_processor", "edlz predict", "leave it out"),
    ],
)
def test_flags_of_another_command(command: Reader, flag: str, owner: str, help_line: str) -> None:
    assert (f"--{flag} belongs to {owner}", help_line) in errors(command, f"--{flag}=yes")


def test_misspelt_flags_have_the_nearest_of_their_command() -> None:
    (message, help_line), *_ = errors("evaluate", "--validation_dat=x")
    assert message == "no flag --validation_dat"
    assert help_line.startswith("did you mean --validation_data")
    assert errors("evaluate", "--traning_data=x")[0] == (
        "no flag --traning_data",
        "all flags: edlz evaluate --help-all",
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (("--prediction_data=p", "--training_data=t"), "--prediction_data with --training_data: "),
        (("--prediction_data=p", "--validation_data=t"), "--prediction_data with --validation_data: "),
        (("--prediction_data=p",), "--checkpoint_dir_for_init is missing"),
        (("--validation_data=p",), "--training_data is missing"),
        (("--checkpoint_dir_for_init=c",), "--training_data is missing"),
    ],
)
def test_what_a_master_is_not_for(data: tuple[str, ...], message: str) -> None:
    assert any(found.startswith(message) for found, _ in errors("master", "--model_def=a.b", *data))


def test_the_data_tells_what_a_job_is_for() -> None:
    config = read("evaluate", *EVALUATE).config
    assert (config.purpose, config.data, config.job_name) == ("evaluation", "test", "a-evaluate")
    master = read_config(config.to_arguments("master"), "master", {})
    assert (master.errors, master.config.purpose) == ((), "evaluation")
    both = JobConfig(model_def="a.b", training_data="x", validation_data="y")
    assert (both.purpose, both.data, both.job_name) == ("training", "x", "a")
    predict = JobConfig(model_def="a.b", prediction_data="x")
    assert (predict.purpose, predict.job_name) == ("prediction", "a-predict")
    assert len(JobConfig(model_def=f"{'m' * 60}.b", validation_data="x").job_name) == 40


def test_kept_settings_are_read_by_the_command_that_wrote_them(tmp_path: Path) -> None:
    config = read("evaluate", *EVALUATE, "--num_workers=3").config
    kept = tmp_path / "job.yaml"
    kept.write_text(config.to_yaml())
    again = resumed_settings(kept, ["--num_workers=1"], [], lambda _: Preflight())
    assert dataclasses.replace(again, config="", num_workers=3, grads_to_wait=3) == config


def test_a_plan_without_training(data: Path) -> None:
    config = JobConfig(model_def="a.b", validation_data=str(data), minibatch_size=10, num_epochs=3)
    plan = make_plan(config)
    assert (plan.is_training, plan.task_count, plan.epochs) == (False, 0, 0)
    assert (len(plan.evaluation_ranges), plan.evaluation_records) == (13, 1000)
    predicting = make_plan(
        JobConfig(model_def="a.b", prediction_data=str(data), minibatch_size=10, num_epochs=3)
    )
    assert (predicting.predicts, predicting.evaluation_ranges) == (True, plan.evaluation_ranges)
    assert predicting.hash == plan.hash, "ledgers and checkpoints do not know what is done with a model"


def test_evaluate_hands_the_job_over(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[JobConfig] = []

    def run(config: JobConfig) -> int:
        jobs.append(config)
        return 7

    monkeypatch.setattr(local, "run_local", run)
    flags = ["--model_file=model.py", f"--validation_data={data}", "--checkpoint_dir_for_init=ckpt"]
    assert main(["evaluate", *flags]) == 7
    assert (jobs[0].purpose, jobs[0].job_name) == ("evaluation", "model-evaluate")


def test_a_dry_run_says_how_much_is_evaluated(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--model_file=model.py", f"--validation_data={data}", "--checkpoint_dir_for_init=ckpt"]
    assert main(["evaluate", *flags, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "plan: 1,000 records: about 2 tasks of evaluation"


def test_a_dry_run_fits_the_terminal_and_counts_tasks_by_shard(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Writer(data / "part-9") as writer:
        writer.write(b"x")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("sys.stdout", Terminal())
    flags = ["--model_file=model.py", "--validation_data=data", "--checkpoint_dir_for_init=ckpt"]
    assert main(["evaluate", *flags, "--num_workers=1", "--records_per_task=8000", "--dry-run"]) == 0
    lines = sys.stdout.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[-1] == "plan: 1,001 records: about 2 tasks of evaluation"
    assert max(map(len, lines[1:])) <= 80


def test_predict_hands_the_job_over_once_all_is_right(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[JobConfig] = []
    monkeypatch.setattr(local, "run_local", lambda config: jobs.append(config) or 7)
    flags = ["--model_file=model.py", "--checkpoint_dir_for_init=ckpt"]
    output, given = "--prediction_output=out", f"--prediction_data={data}"
    assert main(["predict", *flags, output, "--prediction_data=nowhere"]) == 2
    assert 'prediction_data "nowhere"' in capsys.readouterr().err
    assert main(["predict", *flags, output, given, "--dry-run"]) == 0
    assert "about 2 tasks of prediction" in capsys.readouterr().out
    assert jobs == []
    assert main(["predict", *flags, output, given]) == 7
    assert (jobs[0].purpose, jobs[0].prediction_output, jobs[0].prediction_format) == (
        "prediction",
        "out",
        "jsonl",
    )


@pytest.mark.parametrize(
    ("flags", "message", "help_line"),
    [
        ((), "--prediction_output is missing, and the model defines no PredictionOutputsProcessor", "DIR"),
        (("--prediction_outputs_processor=Sink",), "model.py defines no Sink", "it defines: custom_model"),
        (("--prediction_output=model.py",), 'prediction_output "model.py" is no folder', "need not exist"),
        (("--prediction_output=o", "--prediction_format=xml"), '--prediction_format="xml" is none of', ""),
        (("--prediction_output=full",), 'holds the predictions of job "other", 4 records', "another"),
        (("--prediction_output=begun",), 'holds unfinished predictions of job "other"', "edlz resume other"),
        (("--prediction_output=own",), "holds part-00000-of-00001.csv, which no unfinished run", "another"),
    ],
)
def test_predictions_that_cannot_be_taken_are_told_before_anything_runs(
    data: Path, flags: tuple[str, ...], message: str, help_line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = PredictionManifest(
        job="other", checkpoint="c", version=1, format="csv", records=4, tasks=0, parts=()
    )
    claim(Path("full"), "other", "r", is_new=True)
    publish(Path("full"), manifest, "r")
    claim(Path("begun"), "other", "r", is_new=True)
    Path("own").mkdir()
    (Path("own") / "part-00000-of-00001.csv").touch()
    given = ("--model_file=model.py", "--checkpoint_dir_for_init=ckpt", f"--prediction_data={data}")
    assert main(["predict", *given, *flags]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert help_line in told


def test_parquet_needs_its_extra(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    flags = ["--model_file=model.py", "--checkpoint_dir_for_init=ckpt", "--prediction_output=out"]
    assert main(["predict", *flags, f"--prediction_data={data}", "--prediction_format=parquet"]) == 2
    assert "help: pip install 'edlz[data]', or --prediction_format=jsonl" in capsys.readouterr().err


def test_a_checkpoint_in_the_folder_that_a_new_run_moves_aside(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "jobs" / "mnist" / "checkpoints"
    folder.mkdir(parents=True)
    config = JobConfig(
        model_def="a.b", job_name="mnist", validation_data="x", checkpoint_dir_for_init=str(folder)
    )
    found = [problem for problem in check_job(config).errors if "moves aside" in problem.message]
    assert [problem.help for problem in found] == ["give this job another name: --job_name=mnist-2"]
