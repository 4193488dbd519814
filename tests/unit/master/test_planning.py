"""Whether a master begins a job anew or goes on with one, and what its run is called."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError
from edlz.services.master import planning
from edlz.services.master.core.vocabulary.records import FleetRecord
from edlz.services.master.journal.journal import Journal
from edlz.services.master.planning import open_journal
from edlz.services.protocol.concluded_rounds import ConcludedRound, Decision
from edlz.services.protocol.messages import Job
from edlz.services.storage.versions import list_versions
from tests.builders import settings_in
from tests.states import save


@pytest.fixture
def config(tmp_path: Path) -> JobConfig:
    (tmp_path / "job").mkdir()
    about = {"job_name": "job", "checkpoint_dir": str(tmp_path / "checkpoints")}
    return settings_in(tmp_path, records=100, **about)


def opened(config: JobConfig, **changes: object) -> Job:
    """Return the job as a master finds it, or plans it."""
    config = dataclasses.replace(config, **changes)  # type: ignore[arg-type]
    journal, job = open_journal(config, config.job_directory)
    with journal:
        assert journal.job() == job
    return job


def test_runs_are_numbered_by_the_journal_and_by_what_lies_in_the_checkpoint_folder(
    config: JobConfig,
) -> None:
    first = opened(config)
    assert first.run_number == 1
    assert opened(config) == first
    again = opened(config, num_epochs=2)
    assert (again.run != first.run, again.run_number) == (True, 2)
    save(config.checkpoint_directory, 5, run="another job's")
    save(config.checkpoint_directory, 7, run="and one more")
    save(config.checkpoint_directory, 9, run="a third")
    assert opened(config, num_epochs=3).run_number == 4


@pytest.mark.parametrize(("launch", "is_kept"), [("one", True), ("two", False)])
def test_what_was_given_up_is_tried_again_when_the_job_is_started_anew(
    config: JobConfig, launch: str, is_kept: bool
) -> None:
    opened(config, launch_id="one")
    record = FleetRecord(
        asked=1, target=1, next_id=4, crew=(3,), vain=(("worker-3", 9),), given_up=(("worker-2", "code 1"),)
    )
    with Journal(config.job_directory / "journal.sqlite") as journal:
        journal.write(1, {"term": 1, "fleet": record})
    opened(config, launch_id=launch)
    with Journal(config.job_directory / "journal.sqlite") as journal:
        found = journal.state().fleet
    assert found == (record if is_kept else dataclasses.replace(record, vain=(), given_up=()))


def test_a_fresh_run_goes_on_with_what_its_own_launch_began_alone(config: JobConfig) -> None:
    """On a cluster the files of a job lie on a volume, where a new job of that name would go on with them."""
    stopped = opened(config, launch_id="one")
    assert opened(config, launch_id="two").run == stopped.run
    anew = opened(config, launch_id="three", fresh=True)
    assert (anew.run != stopped.run, anew.run_number) == (True, 2)
    assert opened(config, launch_id="three", fresh=True).run == anew.run  # its master is started again
    assert opened(config, launch_id="four").run == anew.run


def test_a_run_that_goes_on_is_newer_than_what_others_saved_meanwhile(config: JobConfig) -> None:
    before = opened(config)
    save(config.checkpoint_directory, 5, run=before.run)
    save(config.checkpoint_directory, 90, run="another job's")
    for changes in ({}, {"resume": True}):
        job = opened(config, **changes)
        assert (job.run, job.run_number) == (before.run, 3)
    save(config.checkpoint_directory, 6, run=job.run)
    assert [info.version for info in list_versions(config.checkpoint_directory)] == [6, 90, 5]


def test_a_version_that_callbacks_have_kept_is_not_left_behind(config: JobConfig, tmp_path: Path) -> None:
    opened(config)
    before, place = config.checkpoint_directory, tmp_path / "elsewhere"
    kept = save(before, 7)
    decision = Decision(logs={}, kept=(7,))
    with Journal(config.job_directory / "journal.sqlite") as journal:
        journal.write(1, {"term": 1, "rounds": (ConcludedRound(task=1, version=9, decision=decision),)})
    with pytest.raises(
        ConfigError, match=rf'"{place}" lacks version-7, which callbacks have kept .* in {before}'
    ) as told:
        opened(config, resume=True, checkpoint_dir=str(place))
    assert told.value.help == f"--checkpoint_dir={before}; or copy {kept} into {place} first"
    opened(config, resume=True)
    (place / kept.name).mkdir(parents=True)
    with pytest.raises(ConfigError, match="lacks version-7"):
        opened(config, resume=True, checkpoint_dir=str(place))
    shutil.copytree(kept, place / kept.name, dirs_exist_ok=True)
    opened(config, resume=True, checkpoint_dir=str(place))


def test_a_job_of_an_edlz_that_did_not_number_runs_gets_a_number(
    config: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("edlz.services.master.planning.next_run_number", lambda *_: 0)
        assert opened(config).run_number == 0
    assert opened(config, resume=True).run_number == 1


def test_a_job_that_goes_on_does_not_look_at_its_data_again(
    config: JobConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index of a file, and the types of its columns, come with the plan; what is in the file now does not matter."""
    data = tmp_path / "rows.csv"
    data.write_text("x,y\n" + "1,2\n" * 500)
    first = opened(config, training_data=str(data))
    assert first.plan.source is not None
    assert len(first.plan.source.files[0].index) >= 12
    assert [column.kind for column in first.plan.source.columns] == ["int64", "int64"]
    data.write_text("x\nanother\n")
    monkeypatch.setattr(planning, "make_plan", None)
    assert opened(config, training_data=str(data)) == first
    assert opened(config, training_data=str(data), resume=True).plan == first.plan
