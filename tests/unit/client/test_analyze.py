"""`edlz analyze`: its flags, and what is checked before anything runs."""

from pathlib import Path

import pytest

from edlz.client.job_files.preflight import check_job
from edlz.services.configuration.arguments import Reading, read_config
from edlz.services.configuration.declared_flags import ANALYZED_RECORDS
from edlz.services.configuration.help_page import help_page
from edlz.services.configuration.job_config import JobConfig

ON_CLUSTER = "--image_name=edlz:x"


def read(*argv: str) -> Reading:
    return read_config(argv, "analyze", {})


def test_data_comes_first_without_a_flag(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path))
    reading = read("data/Adult.csv", "--columns=age,sex", "--num_workers=4")
    config = reading.config
    assert not reading.errors
    assert (config.purpose, config.analysis_data, config.columns) == ("analysis", "data/Adult.csv", "age,sex")
    assert (config.job_name, config.records_per_task, config.num_ps_pods) == (
        "adult-analyze",
        ANALYZED_RECORDS,
        0,
    )
    assert config.statistics_output == str(tmp_path / "jobs" / "adult-analyze" / "statistics")
    assert read("--columns=age", "data/Adult.csv").config.analysis_data == "data/Adult.csv"
    assert read("--analysis_data=data/Adult.csv").config.job_name == "adult-analyze"


def test_a_master_and_a_config_file_have_the_same_settings() -> None:
    config = read("a.csv", "--records_per_task=9", "--vocabulary_size=5").config
    again = read_config(config.to_arguments("master"), "master", {})
    assert not again.errors
    assert again.config.to_record() == config.to_record()
    assert "analysis_data:" in config.to_yaml()
    assert JobConfig.from_record(config.to_record()) == config


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "--analysis_data is missing"),
        (("a.csv", "b.csv"), '"b.csv" belongs to no flag'),
        (("a.csv", "--model_def=a.b"), "--model_def belongs to edlz train"),
        (("a.csv", ON_CLUSTER), "--statistics_output is missing"),
        (("a.csv", "--num_workers=0"), "--num_workers=0: nobody would analyze"),
    ],
)
def test_mistakes(argv: tuple[str, ...], message: str) -> None:
    assert [error.message for error in read(*argv).errors] == [message]


def test_the_page() -> None:
    page = help_page("analyze", "")
    assert page.startswith("Usage: edlz analyze DATA [flags]\n")
    for flag in ("--columns", "--statistics_output", "--num_workers", "--volume"):
        assert flag in page
    assert "--num_ps_pods" not in help_page("analyze", "all")
    assert "records in one task" in help_page("analyze", "records_per_task")
    assert "65536" in help_page("analyze", "records_per_task")


def test_no_model_is_looked_for(tmp_path: Path) -> None:
    data = tmp_path / "a.csv"
    data.write_text("age\n1\n2\n")
    config = read(str(data), f"--statistics_output={tmp_path}/out", "--num_workers=1").config
    found = check_job(config)
    assert (found.errors, found.warnings, found.records) == ([], [], 2)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "statistics.json").write_text("{}")
    (error,) = check_job(config).errors
    assert "holds statistics already" in error.message
    (error,) = check_job(read(str(data), "--columns=agee").config).errors
    assert error.message == '--columns: there is no column "agee"'
    assert error.help == "did you mean age?"
