"""Help pages: what is on them, that they fit 80 columns, and that asking costs nothing."""

import json
import os
import re
import subprocess
import sys
import time

import pytest

from edlz.client.help.data_pages import DATA
from edlz.client.help.job_pages import JOB_FLAGS, JOB_PAGES
from edlz.client.help.pages import COMMANDS, asked_help
from edlz.services.configuration.flags import READERS, Reader
from edlz.services.configuration.help_page import COLUMNS, help_page, help_topic
from edlz.services.configuration.job_config import flags
from edlz.services.configuration.problems import EDLZ_COMMAND, InvalidConfigError
from edlz.services.inputs.known_formats import known_formats

SHORT_PAGE = """\
Usage: edlz train --model_def=NAME --training_data=PATH [flags]
Train a Keras model on this machine; with --image_name, on Kubernetes.

Model and data
  --model_def NAME         module.symbol in the zoo, or a directory    required
  --training_data PATH     files of records, or a directory of them    required
  --validation_data PATH   evaluated while training and at the end
  --model_zoo DIR          where models lie                     [installed zoo]
Training
  --num_epochs N           passes over the data; 0: without end        [1]
  --minibatch_size N       records in one gradient                     [64]
  --use_async              apply each gradient at once                 [no]
Workers        --num_workers [2]  --num_ps_pods [1]
               --grads_to_wait [num_workers]
Results        --evaluation_steps  --log_loss_steps [100]  --checkpoint_steps
               --checkpoint_dir [the job's]  --output  --tensorboard_log_dir
Kubernetes     --image_name  --namespace [the context's]  --volume
This run       --job_name [the model's]  --config  --progress [auto]
More: --help=GROUP  model(17)  training(16)  workers(11)  results(10)
                    kubernetes(25)  images(9)  run(13)
      --help=WORD   flags about a word, e.g. --help=evaluation
      --help-all    all of them
"""

EVALUATE_PAGE = """\
Usage: edlz evaluate [flags]
Evaluate a checkpoint on this machine; with --image_name, on Kubernetes.

Model and data
  --model_def NAME         module.symbol in the zoo, or a directory    required
  --validation_data PATH   files of records, or a directory of them    required
  --checkpoint_dir_for_init DIR  checkpoint folder, or a version-<V>   required
  --model_zoo DIR          where models lie                     [installed zoo]
Evaluation
  --minibatch_size N       records computed at once                    [64]
Workers        --num_workers [2]  --num_ps_pods [1]
Kubernetes     --image_name  --namespace [the context's]  --volume
This run       --job_name [MODEL-evaluate]  --config  --progress [auto]
More: --help=GROUP  model(14)  training(8)  workers(10)  kubernetes(25)
                    images(9)  run(12)
      --help=WORD   flags about a word, e.g. --help=evaluation
      --help-all    all of them
"""

HEAVY = ("tensorflow", "keras", "numpy", "zmq", "msgspec", "rich", "typer", "yaml", "asyncio")


@pytest.mark.parametrize("command", COMMANDS)
def test_errors_and_screens_know_each_command_that_they_must_not_break(command: str) -> None:
    assert re.fullmatch(EDLZ_COMMAND, f"edlz {command.partition(' ')[0]}")


def test_the_short_page() -> None:
    assert help_page("train", "") == SHORT_PAGE
    assert help_page("evaluate", "") == EVALUATE_PAGE
    assert "--prediction_data PATH   files of records, or a directory of them    required" in help_page(
        "predict", ""
    )


def test_all_pages_fit_80_columns_and_have_no_blanks_at_the_end() -> None:
    for reader in READERS:
        shown = [about for about in flags() if reader in about.readers and not about.hidden]
        for topic in ["", "all", "run", *(about.name for about in shown)]:
            for line in help_page(reader, topic).splitlines():
                assert len(line) <= COLUMNS, (reader, topic, line)
                assert line == line.rstrip(), (reader, topic, line)


@pytest.mark.parametrize(
    ("reader", "name"),
    [
        ("train", "the model's"),
        ("evaluate", "MODEL-evaluate"),
        ("predict", "MODEL-predict"),
        ("analyze", "DATA-analyze"),
    ],
)
def test_a_jobs_own_name_is_said_as_it_is(reader: Reader, name: str) -> None:
    assert f"--job_name [{name}]" in help_page(reader, "")


def test_no_group_is_proposed_that_has_no_flags() -> None:
    with pytest.raises(InvalidConfigError) as refused:
        help_page("evaluate", "results")
    assert [problem.help for problem in refused.value.problems] == ["edlz evaluate --help-all"]


def test_the_full_page_has_every_flag_on_one_line() -> None:
    for reader in READERS:
        page = help_page(reader, "all")
        for about in flags():
            is_shown = reader in about.readers and not about.hidden
            found = re.findall(rf"^  --{about.name}\b", page, re.MULTILINE)
            assert len(found) == is_shown, (reader, about.name)


def test_a_group_a_flag_and_a_word() -> None:
    assert help_page("train", "workers").splitlines()[0] == "Workers"
    page = help_page("train", "training_data")
    assert "--training_data_dir" in page
    assert "EDLZ_TRAINING_DATA" in page
    assert help_page("train", "training_data_dir") == page
    found = [line.split()[0] for line in help_page("train", "evaluat").splitlines() if "--" in line]
    assert found == ["--validation_data", "--evaluation_steps"]


def test_a_topic_that_is_nowhere() -> None:
    with pytest.raises(InvalidConfigError) as raised:
        help_page("train", "wrkers")
    assert raised.value.help == "did you mean --help=workers?"
    with pytest.raises(InvalidConfigError, match="a part of edlz"):
        help_page("train", "job_command")
    with pytest.raises(InvalidConfigError, match="worker_id"):
        help_page("train", "worker_id")


@pytest.mark.parametrize(
    ("argv", "topic"),
    [
        (["--num_epochs=2"], None),
        (["-h"], ""),
        (["--seed=1", "--help"], ""),
        (["--help-all"], "all"),
        (["--help=Workers"], "workers"),
        (["--help=--num-workers"], "num_workers"),
    ],
)
def test_what_help_is_asked_for(argv: list[str], topic: str | None) -> None:
    assert help_topic(argv) == topic


def test_pages_of_edlz_itself() -> None:
    for argv in ([], ["--help"], ["-h"], ["help"]):
        page = asked_help(argv)
        assert page is not None
        assert "edlz train" in page
    assert asked_help(["train", "-h"]) == SHORT_PAGE
    assert asked_help(["evaluate", "-h"]) == EVALUATE_PAGE
    assert "--prediction_output" in str(asked_help(["predict", "-h"]))
    assert "edlz zoo data NAME OUTPUT" in str(asked_help(["zoo", "data", "--help"]))
    assert asked_help(["zoo"]) == asked_help(["zoo", "--help"])
    assert asked_help(["zoo", "data", "mnist", "x"]) is None


@pytest.mark.parametrize("name", list(JOB_PAGES))
def test_pages_of_the_commands_on_jobs(name: str) -> None:
    page = asked_help([name, "--help"])
    assert page is not None
    lines = page.splitlines()
    assert lines[0].startswith(f"Usage: edlz {name}")
    assert all(len(line) <= COLUMNS and line == line.rstrip() for line in lines)
    assert all(flag in page for flag in JOB_FLAGS[name])
    assert f"  edlz {name} " in str(asked_help([]))


@pytest.mark.parametrize("reader", list(READERS))
def test_defaults_are_those_of_the_reader(reader: Reader) -> None:
    page = help_page(reader, "all")
    if reader == "master":
        assert "--num_workers N          workers to start                            [0]" in page
    if reader == "ps":
        assert "[2222 + ps_id]" in page


@pytest.mark.parametrize(
    "argv", [["--help"], ["train", "--help"], ["train", "--help-all"], ["zoo", "data", "-h"], ["logs", "-h"]]
)
def test_help_is_quick_and_imports_nothing_heavy(argv: list[str]) -> None:
    program = (
        "import json, sys\n"
        "from edlz.client.cli import main\n"
        "code = main(sys.argv[1:])\n"
        "print(json.dumps([code, sorted(sys.modules)]))\n"
    )
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", program, *argv],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    took_s = time.perf_counter() - began
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0
    assert not set(HEAVY) & set(modules)
    assert took_s < 5.0  # 0.1 s by itself; the bound only catches what is grossly wrong on a busy machine


def test_the_page_about_data_names_each_format_and_its_parameters() -> None:
    for known in known_formats().values():
        _, _, about = DATA.partition(f"  {known.name} ")
        assert about
        for name in known.params:
            assert f"{name}=" in about, (known.name, name)
        assert known.suffixes[0] in about
