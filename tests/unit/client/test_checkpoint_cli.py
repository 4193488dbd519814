"""`edlz checkpoint`: what it prints, its exit codes, and that it stays light."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edlz.client import cli
from edlz.client.cli import main
from edlz.client.screen.long_work import Advance, Amount
from edlz.client.screen.wording import age, size
from edlz.services.storage.checkpoint_writing import Finished, write_manifest, write_part
from edlz.services.storage.versions import list_versions
from tests.states import make_cut

LIST_KEYS = {
    *("version", "path", "state", "damage", "parts", "partitions", "size_bytes", "at", "job", "run"),
    *("plan_hash", "mode", "epoch", "minibatches"),
}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def save(folder: Path, version: int, *, job: str = "mnist", is_finished: bool = True) -> None:
    cut = make_cut(2, version=version, tables=((4, "Adagrad", 4000),))
    cut = cut if is_finished else cut[:1]
    parts = [write_part(folder, s, version=version, number=version, run=job, tag="t") for s in cut]
    if is_finished:
        finished = Finished(
            job=job,
            run=job,
            mode="sync",
            number=version,
            epoch=version // 300,
            minibatches=2 * version,
        )
        write_manifest(folder, version, [part for part in parts if part is not None], finished, tag="t")


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    """A good version 300, a damaged 450, a good 600, an unfinished 750."""
    folder = tmp_path / "ckpt"
    for version in (300, 450, 600):
        save(folder, version)
    save(folder, 750, is_finished=False)
    (folder / "version-450" / "part-1-of-2.safetensors").unlink()
    return folder


def flip_a_row(version: Path) -> None:
    path = version / "part-0-of-2.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def printed_object(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, object]:
    main(["checkpoint", *argv, "-o", "json"])
    out = capsys.readouterr().out
    found: dict[str, object] = json.loads(out)
    return found


def test_ls(checkpoints: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint", "ls", str(checkpoints)]) == 0
    out = re.sub(r" \d+s ", " 0s ", capsys.readouterr().out)
    sizes = {info.version: size(info.size_bytes) for info in list_versions(checkpoints)}
    assert out.splitlines() == [
        "VERSION  EPOCH  MINIBATCHES  PARTS  SIZE      AGE  STATE",
        f"750      -          -        1/2    {sizes[750]:<8}  0s   incomplete",
        f"600      2      1,200        2/2    {sizes[600]:<8}  0s   good   <- resume, newest",
        f"450      1        900        1/2    {sizes[450]:<8}  0s   damaged: part 1, missing",
        f"300      1        600        2/2    {sizes[300]:<8}  0s   good",
    ]


def test_ls_of_two_jobs_shows_whose_they_are(checkpoints: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(checkpoints, 900, job="other")
    assert main(["checkpoint", "ls", str(checkpoints)]) == 0
    header, first, *_ = capsys.readouterr().out.splitlines()
    assert header.split()[-3:] == ["JOB", "PLAN", "STATE"]
    assert "other  plan  good" in first


def test_ls_as_json(checkpoints: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = printed_object(capsys, "ls", str(checkpoints))
    versions = found["versions"]
    assert isinstance(versions, list)
    assert [(one["version"], one["state"], one["is_newest_good"]) for one in versions] == [
        (750, "incomplete", False),
        (600, "good", True),
        (450, "damaged", False),
        (300, "good", False),
    ]
    assert all(set(one) == LIST_KEYS | {"is_newest_good"} for one in versions)
    (damage,) = versions[2]["damage"]
    assert damage == {
        "path": str(checkpoints / "version-450" / "part-1-of-2.safetensors"),
        "part": 1,
        "reason": "missing",
    }


def test_one_version_is_listed_alone(
    checkpoints: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkpoints / "version-300")
    assert main(["checkpoint", "ls", "."]) == 0
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == ["STATE", "good"]


@pytest.mark.parametrize("setting", ["", "checkpoint_dir: {folder}\n"], ids=["its own", "named"])
def test_a_local_job_is_found_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str
) -> None:
    job = tmp_path / "home" / "jobs" / "mnist"
    job.mkdir(parents=True)
    folder = tmp_path / "elsewhere" if setting else job / "checkpoints"
    (job / "job.yaml").write_text("num_epochs: 2\n" + setting.format(folder=folder))
    assert main(["checkpoint", "ls", "mnist"]) == 4
    assert f"{folder} does not exist" in capsys.readouterr().err
    save(folder, 300)
    assert main(["checkpoint", "ls", "mnist"]) == 0
    assert "300" in capsys.readouterr().out


def test_show(checkpoints: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint", "show", str(checkpoints)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{checkpoints}/version-600  good")
    for expected in (
        "  job        mnist, sync, plan plan",
        "  ledger     11 minibatches; 3 tasks finished, 1 task begun",
        "  optimizer  Adam(beta_1=0.9, amsgrad=False); slots: momentum, velocity",
        "dense parameters: 85 in 3 variables",
        "  v0        4 x 8  32",
        "  table 0 ü  4,000  4    160.0 KB  values[4], accumulator[4]",
    ):
        assert expected in lines
    found = printed_object(capsys, "show", str(checkpoints / "version-300"))
    assert set(found) == LIST_KEYS | {"ledger", "optimizer", "variables", "tables"}
    assert found["version"] == 300
    assert found["ledger"] == {"minibatches": 11, "finished_tasks": 3, "marks": {"4": 2}}


def test_nothing_is_shown_of_what_is_not_whole(checkpoints: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint", "show", str(checkpoints / "version-450")]) == 4
    assert "version-450 is damaged" in capsys.readouterr().err


def test_verify_names_each_damaged_file(checkpoints: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip_a_row(checkpoints / "version-600")
    assert main(["checkpoint", "verify", str(checkpoints)]) == 1
    printed = capsys.readouterr()
    assert [line.split()[-1] for line in printed.out.splitlines()[1:]] == [
        "incomplete",
        "damaged",
        "damaged",
        "good",
    ]
    assert printed.err.splitlines() == [
        f"error: {checkpoints}/version-600/part-0-of-2.safetensors is damaged (checksum)",
        f"error: {checkpoints}/version-450/part-1-of-2.safetensors is damaged (missing)",
        f"help: newest good one: {checkpoints}/version-300",
    ]
    found = printed_object(capsys, "verify", str(checkpoints / "version-600"))
    (only,) = found["versions"]  # type: ignore[misc]
    assert (only["state"], len(only["damage"])) == ("damaged", 1)


@pytest.mark.parametrize(("version", "code"), [(300, 0), (450, 1), (750, 1)])
def test_the_code_of_verify(checkpoints: Path, version: int, code: int) -> None:
    assert main(["checkpoint", "verify", str(checkpoints / f"version-{version}")]) == code


def test_verify_says_how_far_it_is_of_what_it_reads(
    checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(checkpoints / "version-450")
    seen: list[tuple[int, int]] = []

    @contextmanager
    def watched(title: str, *, total: int) -> Iterator[Advance]:
        amount = Amount(title, "", total)
        yield amount.advance
        seen.append((amount.done, total))

    monkeypatch.setattr("edlz.client.commands.checkpoint.long_work", watched)
    main(["checkpoint", "verify", str(checkpoints / "version-300")])
    main(["checkpoint", "verify", str(checkpoints)])
    for done, total in seen:
        assert 0.95 * total < done <= total, "an incomplete version is not read"


@pytest.mark.parametrize(
    ("argv", "code", "error", "help_line"),
    [
        (["ls", "mnits"], 4, '"mnits" is neither a folder nor a local job', "did you mean mnist?"),
        (
            ["ls", "no/where"],
            4,
            '"no/where" is neither a folder nor a local job',
            "edlz ls names the jobs of this machine",
        ),
        (["ls", "empty"], 4, "empty holds no checkpoint", "name a checkpoint folder, or a version-<V> in it"),
        (["ls", "x", "-o", "jsn"], 2, '--output="jsn" is none of table, json', "did you mean json?"),
        (["ls"], 2, "missing argument 'DIR|JOB'", "edlz checkpoint ls --help"),
        (
            ["lst"],
            2,
            'no command "checkpoint lst"',
            "did you mean edlz checkpoint ls?",
        ),
        (["ls", "x", "--ouput=json"], 2, "no flag --ouput", "did you mean --output?"),
    ],
)
def test_mistakes(
    argv: list[str],
    code: int,
    error: str,
    help_line: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "home" / "jobs" / "mnist").mkdir(parents=True)
    (tmp_path / "home" / "jobs" / "mnist" / ".edlz-job").touch()
    assert main(["checkpoint", *argv]) == code
    help_lines = [f"help: {help_line}"] if help_line else []
    assert capsys.readouterr().err.splitlines() == [f"error: {error}", *help_lines]


@pytest.mark.parametrize("argv", [["checkpoint"], ["checkpoint", "ls", "--help"], ["help"]])
def test_help_fits_and_names_the_commands(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 and line == line.rstrip() for line in lines)
    assert [line.split()[2] for line in lines if line.startswith("  edlz checkpoint")] == [
        "ls",
        "show",
        "verify",
    ]


def test_completion_offers_jobs_and_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home" / "jobs" / "mnist").mkdir(parents=True)
    (tmp_path / "home" / "jobs" / "mnist" / ".edlz-job").touch()
    (tmp_path / "models").mkdir()
    (tmp_path / "map.txt").touch()
    monkeypatch.setenv("_EDLZ_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "edlz checkpoint ls m")
    monkeypatch.setenv("COMP_CWORD", "3")
    with pytest.raises(SystemExit):
        cli.main([])
    assert capsys.readouterr().out.split() == ["mnist", "models/"]


def test_it_needs_no_tensorflow(checkpoints: Path) -> None:
    program = (
        "import sys; from edlz.client.cli import main\n"
        f"code = main(['checkpoint', 'verify', {str(checkpoints / 'version-300')!r}])\n"
        "heavy = {'tensorflow', 'keras', 'zmq', 'asyncio'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=120)


def test_words() -> None:
    assert [age(seconds) for seconds in (-1, 0, 59.9, 60, 7199, 7200, 200_000)] == [
        *("0s", "0s", "59s", "1m", "1h", "2h", "2d")
    ]
    assert [size(n) for n in (0, 999, 1000, 4_800_000, 999_960_000, 5 * 10**12)] == [
        *("0 B", "999 B", "1.0 KB", "4.8 MB", "1.0 GB", "5.0 TB")
    ]
