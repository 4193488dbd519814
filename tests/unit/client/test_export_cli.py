"""`edlz export`: what it reads from, and what is refused before TensorFlow is imported."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from edlz.api.recordio import Writer
from edlz.client.cli import main
from edlz.client.job_files.model_source import model_source
from edlz.services.configuration.job_config import JobConfig
from edlz.services.configuration.problems import InvalidConfigError
from edlz.services.errors import ConfigError
from edlz.services.master.journal.journal import Journal
from edlz.services.master.planning import make_plan
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.protocol.messages import Job
from edlz.services.storage.checkpoint_writing import Finished, write_manifest, write_part
from edlz.services.storage.snapshots import SnapshotFolder
from edlz.services.storage.versions import NoCheckpoint
from tests import builders
from tests.states import make_cut

MODEL = Path(__file__).parents[1] / "models" / "tiny_mlp.py"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def config(tmp_path: Path) -> JobConfig:
    with Writer(tmp_path / "data") as writer:
        for number in range(20):
            writer.write(b"%d" % number)
    return JobConfig(model_file=str(MODEL), training_data=str(tmp_path / "data"), seed=5, minibatch_size=4)


def save(folder: Path, config: JobConfig | None, version: int = 7, plan_hash: str = "plan") -> Path:
    parts = []
    for state in make_cut(2, version=version):
        whole = msgspec.structs.replace(state, plan_hash=plan_hash)
        info = write_part(folder, whole, version=version, number=version, run="r", tag="t")
        assert info is not None
        parts.append(info)
    finished = Finished(
        job="tiny",
        run="r",
        mode="sync",
        number=version,
        epoch=1,
        minibatches=1,
        settings=config.model_settings() if config else {},
    )
    write_manifest(folder, version, parts, finished, tag="t")
    return folder / f"version-{version}"


def make_job(tmp_path: Path, config: JobConfig, partitions: int = 2) -> tuple[Path, Job]:
    """A job's folder with a journal, as a master leaves it."""
    folder = tmp_path / "home" / "jobs" / "tiny"
    folder.mkdir(parents=True)
    plan = make_plan(config)
    whole = {**config.to_record(), "job_name": "tiny", "job_dir": str(folder)}
    job = builders.job(plan, name="tiny", config=whole, partitions=partitions)
    with Journal(folder / "journal.sqlite") as journal:
        journal.begin(job)
    return folder, job


def seal(folder: Path, job: Job, partition: int, *, is_full: bool = True, version: int = 9) -> None:
    state = make_cut(job.partitions, version=version)[partition]
    tasks = (0, job.plan.task_count) if is_full else ()
    ledger = LedgerRecord(finished=tasks, minibatches=5)
    snapshots = SnapshotFolder(partition, folder)
    snapshots.open(job)
    snapshots.write(msgspec.structs.replace(state, plan_hash=job.plan.hash, ledger=ledger), (1, partition))


def test_a_checkpoint_says_what_builds_its_model(tmp_path: Path, config: JobConfig) -> None:
    folder = tmp_path / "checkpoints"
    save(folder, config, 5)
    newest = save(folder, config, 7)
    found = model_source(str(folder))
    assert (found.where, found.job, len(found.heads)) == (newest, "tiny", 2)
    ours = ("model_file", "training_data", "seed", "minibatch_size", "worker_threads")
    assert all(getattr(found.config, name) == getattr(config, name) for name in ours)
    assert found.plan.seed == 5
    with found.open() as cut:
        assert cut.version == 7
    assert model_source(str(folder / "version-5")).where.name == "version-5"


def test_the_newest_good_version_is_taken(tmp_path: Path, config: JobConfig) -> None:
    folder = tmp_path / "checkpoints"
    good, bad = save(folder, config, 5), save(folder, config, 7)
    body = bad / "part-0-of-2.safetensors"
    content = bytearray(body.read_bytes())
    content[-1] ^= 1
    body.write_bytes(content)
    assert model_source(str(folder)).where == good
    with pytest.raises(NoCheckpoint, match="checksum") as raised:
        model_source(str(bad))
    assert raised.value.help == f"newest good one: {good}"


def test_of_a_job_its_end_is_taken_else_its_newest_checkpoint(tmp_path: Path, config: JobConfig) -> None:
    folder, job = make_job(tmp_path, config)
    with pytest.raises(NoCheckpoint, match="is not at its end, and has no checkpoint"):
        model_source("tiny")
    saved = save(folder / "checkpoints", None, 7, job.plan.hash)
    seal(folder, job, 0)
    seal(folder, job, 1, is_full=False)
    assert model_source("tiny").where == saved
    seal(folder, job, 1)
    for name in ("tiny", str(folder)):
        found = model_source(name)
        assert (found.where, found.job, found.run) == (folder, "tiny", "r")
        assert [head.parent.parent.parent.name for head in found.heads] == ["ps-0", "ps-1"]
        with found.open() as cut:
            assert cut.version == 9


def test_an_older_checkpoint_needs_the_flags(tmp_path: Path, config: JobConfig) -> None:
    version = save(tmp_path / "checkpoints", None)
    with pytest.raises(InvalidConfigError, match="does not say which model it is of") as raised:
        model_source(str(version))
    assert "--config=job.yaml" in raised.value.help
    (tmp_path / "job.yaml").write_text(config.to_yaml())
    assert model_source(str(version), {"config": str(tmp_path / "job.yaml")}).config.seed == 5
    given = {"model_file": str(MODEL), "training_data": config.training_data}
    assert model_source(str(version), given).config.model_file == str(MODEL)


def test_flags_take_the_place_of_what_was_kept(tmp_path: Path, config: JobConfig) -> None:
    version = save(tmp_path / "checkpoints", config)
    given = {"model_def": "mnist.mnist_subclass.CustomModel"}
    found = model_source(str(version), given).config
    assert (found.model_def, found.model_file) == (given["model_def"], "")


@pytest.mark.parametrize(
    ("argv", "error", "help_line"),
    [
        (
            ["nothing", "out"],
            '"nothing" is neither a checkpoint folder nor a local job',
            "a job of a cluster",
        ),
        (["{}", "out", "--unknown_ids=zero"], '--unknown_ids="zero" is none of', "did you mean zeros?"),
        (["{}", "out", "--output_format=onnx"], '--output_format="onnx" is none of', ""),
        (["{}", "m.keras", "--output_format=saved_model"], "a file has one format", "name a folder"),
        (["{}", "out", "--model_file=no.py"], '--model_file="no.py" does not exist', ""),
        (["{}", "out", "--training_data=no"], 'training_data "no" does not exist', ""),
        (["{}", "out", "--model_dir=x"], "no flag --model_dir", "did you mean --model_def"),
        (
            ["{}", "{}/version-7/manifest.json/out"],
            "cannot be written: Not a directory",
            "name another place",
        ),
        (["{}", "out", "--model_def=mnist.nothing.custom_model"], "no mnist/nothing.py", ""),
    ],
)
def test_mistakes(
    tmp_path: Path,
    config: JobConfig,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    argv: list[str],
    error: str,
    help_line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "checkpoints"
    save(folder, config)
    assert main(["export", *(word.replace("{}", str(folder)) for word in argv)]) in (2, 4)
    printed = capsys.readouterr().err
    assert error in printed
    assert help_line in printed
    assert not (tmp_path / "out").exists()


def test_what_is_gone_can_be_named(
    tmp_path: Path, config: JobConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    version = save(tmp_path / "checkpoints", config)
    Path(config.training_data).rename(tmp_path / "elsewhere")
    assert main(["export", str(version), str(tmp_path / "out")]) == 2
    printed = capsys.readouterr().err
    assert f'training_data "{config.training_data}" does not exist' in printed
    assert "help: --training_data=PATH with records of the same form: a few are enough" in printed
    assert model_source(str(version), {"training_data": str(tmp_path / "elsewhere")})


def test_refusals_import_no_tensorflow(tmp_path: Path, config: JobConfig) -> None:
    version = save(tmp_path / "checkpoints", config)
    program = (
        "import sys\n"
        "from edlz.client.cli import main\n"
        "assert main(sys.argv[1:]) == 2\n"
        "assert 'tensorflow' not in sys.modules\n"
        "import edlz.api\n"
        "edlz.api.load\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    target = str(version / "manifest.json" / "out")
    done = subprocess.run(
        [sys.executable, "-c", program, "export", str(version), target],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_api_finds_its_work() -> None:
    from importlib.metadata import entry_points

    from edlz.client import loading

    (entry,) = entry_points(group="edlz.api", name="load")
    assert entry.load() is loading.load


def test_loading_refuses_what_it_cannot_do() -> None:
    from edlz.api import load

    with pytest.raises(ConfigError, match="unknown_ids='zero' is none of initial, zeros, mean"):
        load("tiny", unknown_ids="zero")
    with pytest.raises(NoCheckpoint, match='"tiny" is neither a checkpoint folder nor a local job'):
        load("tiny")
