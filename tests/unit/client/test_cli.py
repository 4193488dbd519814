"""`edlz`: from words to exit codes.  Nothing is trained here."""

from pathlib import Path

import pytest

from edlz.api.recordio import Writer
from edlz.client import cli
from edlz.client.arguments.completion import complete_value
from edlz.client.cli import main
from edlz.client.commands import zoo
from edlz.client.help.pages import DATASETS
from edlz.client.job_files.preflight import check_visible_model
from edlz.client.local import beginning as local
from edlz.model_zoo import datasets
from edlz.services.configuration.arguments import read_config
from edlz.services.configuration.job_config import JobConfig, flags_by_spelling
from edlz.services.errors import DataError, LaunchError
from tests.rights import without_rights

MODEL = """
def custom_model(): ...
def loss(labels, predictions): ...
def optimizer(): ...
def feed(dataset, mode, metadata): ...
"""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("EDLZ_DEBUG", raising=False)


@pytest.fixture
def job(tmp_path: Path) -> list[str]:
    """A command line that passes all checks."""
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "data").mkdir()
    with Writer(tmp_path / "data" / "part-0") as writer:
        for _ in range(4096):
            writer.write(b"x")
    return ["train", f"--model_file={tmp_path}/model.py", f"--training_data={tmp_path}/data"]


def test_train_hands_the_job_to_the_supervisor_and_returns_its_code(
    job: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[JobConfig] = []

    def run(config: JobConfig) -> int:
        jobs.append(config)
        return 7

    monkeypatch.setattr(local, "run_local", run)
    assert main([*job, "--num-epochs=3", "--use_async=TRUE"]) == 7
    assert (jobs[0].num_epochs, jobs[0].use_async, jobs[0].job_name) == (3, True, "model")


def test_mistakes_in_flags_and_in_files_leave_with_2(
    job: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "run_local", lambda config: pytest.fail("it was run"))
    assert main([*job, "--num_epochs=x", "--nonsense"]) == 2
    assert capsys.readouterr().err.count("error: ") == 2
    assert main([*job, "--loss=missing", "--validation_data=nowhere"]) == 2
    printed = capsys.readouterr()
    assert printed.out.endswith(": checking model and data\n"), "a sign of life, and nothing else"
    assert "defines no missing" in printed.err
    assert 'validation_data "nowhere" does not exist' in printed.err
    assert "Traceback" not in printed.err


def test_warnings_do_not_stop_the_job(
    job: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "run_local", lambda config: 0)
    assert main([*job, "--num_workers=4", "--grads_to_wait=2"]) == 0
    assert "warning: num_workers=4, but grads_to_wait=2: 2 workers would wait" in capsys.readouterr().err


@pytest.mark.parametrize(("error", "code"), [(DataError("bad", "mend it"), 1), (LaunchError("no"), 1)])
def test_errors_on_purpose_have_no_traceback_unless_asked_for(
    error: Exception,
    code: int,
    job: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(config: JobConfig) -> int:
        raise error

    monkeypatch.setattr(local, "run_local", fail)
    assert main(job) == code
    printed = capsys.readouterr().err
    assert printed.startswith("error: ")
    assert "Traceback" not in printed
    monkeypatch.setenv("EDLZ_DEBUG", "1")
    assert main(job) == code
    assert "Traceback" in capsys.readouterr().err


def test_a_bug_of_ours_leaves_with_70_and_a_report(
    job: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(config: JobConfig) -> int:
        raise KeyError("oops")

    monkeypatch.setattr(local, "run_local", fail)
    assert main(job) == 70
    printed = capsys.readouterr().err
    assert "Traceback" in printed
    assert "error: edlz itself failed: KeyError: 'oops'" in printed
    (report,) = (tmp_path / "home" / "reports").iterdir()
    assert "KeyError: 'oops'" in report.read_text()
    assert f"help: please report this, with {report}" in printed


@pytest.mark.parametrize("envs", [["--envs=CITY=Lima7,B=Oslo8"], ["--envs", "CITY=Lima7,B=Oslo8"]])
def test_a_report_is_to_be_sent_and_has_no_secrets(
    envs: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(reader: str, argv: list[str]) -> int:
        raise KeyError("token=abc123")

    monkeypatch.setattr("edlz.client.commands.train.run_job", fail)
    assert main(["train", *envs, "--num_epochs=3"]) == 70
    (report,) = (tmp_path / "home" / "reports").iterdir()
    told = report.read_text()
    assert "--num_epochs=3" in told
    assert not any(secret in told for secret in ("Lima7", "Oslo8", "abc123"))


def test_a_name_that_no_file_can_have_is_no_bug_of_ours(
    job: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([*job[:1], f"--model_file={'a' * 300}", *job[2:]]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: no file can have so long a name: 'aaa")
    assert "help: see the paths in the command" in printed
    assert not (tmp_path / "home" / "reports").exists()


def test_ctrl_c_before_anything_runs(job: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(config: JobConfig) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "run_local", interrupt)
    assert main(job) == 130


def test_a_folder_without_rights_is_no_bug_of_ours(
    job: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with without_rights(tmp_path / "closed"):
        assert main([*job[:1], f"--model_file={tmp_path}/closed/model.py", *job[2:]]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith(f"error: {tmp_path}/")  # the superuser's own folder comes before the closed one
    assert said[0].endswith(": Permission denied")
    assert said[1].startswith("help: the user that runs edlz has no right to it")
    assert not (tmp_path / "home" / "reports").exists()


@pytest.mark.parametrize(
    ("argv", "error", "help_line"),
    [
        (["trian"], 'no command "trian"', "did you mean edlz train?"),
        (["deploy"], 'no command "deploy"', "all commands: edlz --help"),
        (["zoo", "dta"], 'no command "zoo dta"', "did you mean edlz zoo data?"),
        (["zoo", "data", "mnist", "x", "--sorce=y"], "no flag --sorce", "did you mean --source?"),
        (["zoo", "data", "mnst", "x"], 'no data set "mnst"', "did you mean mnist?"),
        (["zoo", "data"], "missing argument 'name'", "edlz zoo data --help"),
        (["logs", "mnist", "--tial=3"], "no flag --tial", "did you mean --tail?"),
        (["rm"], "which job?", "edlz rm JOB…, or edlz rm --all succeeded|failed|stopped"),
        (["--foo"], "no flag --foo here", "a command comes first: edlz --help"),
        (
            ["data", "head", "x", "--records=a"],
            '--records="a" is not a whole number',
            "edlz data head --help",
        ),
        (
            ["data", "info", "x", "--minibatch_size", "0"],
            "--minibatch_size=0 is below 1",
            "edlz data info --help",
        ),
        (
            ["data", "info", "x", "--minibatch-size=-"],
            '--minibatch_size="-" is not a whole number',
            "edlz data info --help",
        ),
        (["data", "info", "no", "--data-reader-params=a=5"], 'PATH "no" does not exist', None),
        (
            ["zoo", "data", "mnist", "x", "--seed=a"],
            '--seed="a" is not a whole number',
            "edlz zoo data --help",
        ),
        (
            ["train", "--help=wrkers"],
            'no group, flag or word "wrkers" in the flags of edlz train',
            "did you mean --help=workers?",
        ),
    ],
)
def test_usage_errors(
    argv: list[str], error: str, help_line: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    wanted = [f"error: {error}"] + ([f"help: {help_line}"] if help_line else [])
    assert capsys.readouterr().err.splitlines() == wanted


def test_zoo_data_converts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[tuple[str, Path | None, Path]] = []

    def convert(name: str, source: Path | None, output: Path, *, watch: object) -> datasets.Converted:
        calls.append((name, source, output))
        return datasets.Converted(
            train_records=6000, test_records=1000, paths=(), origin="somewhere", was_there=False
        )

    monkeypatch.setattr(zoo, "convert", convert)
    assert main(["zoo", "data", "mnist", str(tmp_path), "--source", "idx"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path}/train  6,000 records written",
        f"{tmp_path}/test   1,000 records written",
        "from somewhere",
    ]
    assert main(["zoo", "data", "fashion_mnist", "out"]) == 0
    assert calls == [("mnist", Path("idx"), tmp_path), ("fashion_mnist", None, Path("out"))]
    assert datasets.DATASETS == DATASETS


def test_zoo_data_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "data", "mnist", str(tmp_path / "out"), f"--source={tmp_path}"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("error: ")
    assert "Traceback" not in printed


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("edlz ")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("edlz train --num_w", "--num_workers"),
        ("edlz train --progress p", "plain"),
        ("edlz train --distribution_strategy P", "ParameterServerStrategy"),
        ("edlz tr", "train"),
        ("edlz sca", "scale"),
        ("edlz logs --fol", "--follow"),
        ("edlz rm --all su", "succeeded"),
        ("edlz train --fre", "--fresh"),
        ("edlz zoo data fash", "fashion_mnist"),
    ],
)
def test_completion(
    words: str, expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_EDLZ_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    with pytest.raises(SystemExit):
        cli.main([])
    assert capsys.readouterr().out.split() == [expected]


def test_models_are_completed_by_listing_files() -> None:
    complete = complete_value(flags_by_spelling()["model_def"])
    words = complete("mnist.")
    assert "mnist.mnist_functional_api.custom_model" in words
    assert all(word.startswith("mnist.") for word in words)


def test_every_model_that_is_completed_is_one_that_training_takes() -> None:
    words = [word for word in complete_value(flags_by_spelling()["model_def"])("") if "/" not in word]
    models = [word for word in words if not Path(word).exists()]
    assert {"mnist.mnist_subclass.CustomModel", "census.wide_deep.custom_model"} <= set(models)
    for model in models:
        assert check_visible_model(JobConfig(model_def=model), must_be_here=True).errors == [], model


@pytest.mark.parametrize("command", ["train", "evaluate", "predict"])
def test_every_choice_that_is_completed_is_one_that_the_command_takes(command: str) -> None:
    for about in flags_by_spelling().values():
        if command not in about.readers or not about.choices:
            continue
        for choice in complete_value(about)(""):
            reading = read_config([f"--{about.name}={choice}"], command, {})
            wrong = [problem.message for problem in reading.errors if f"--{about.name}" in problem.message]
            assert wrong == [], (about.name, choice)
