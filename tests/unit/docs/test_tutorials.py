"""What the tutorials show is run by a test, and their links lead somewhere."""

import os
import re
import shlex
from pathlib import Path

import pytest

from edlz.client.cli import main
from tests.tutorials import FOLDER, ROOT, Step, steps, write_files

TUTORIALS = sorted(path.name for path in FOLDER.glob("*.md"))
TESTS = (
    "tests/cluster/test_tutorials.py",
    "tests/cluster/test_docker_tutorial.py",
    "tests/cluster/test_build_tutorial.py",
    "tests/k8s/cases/test_cluster_tutorials.py",
)
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)?(#[^)]+)?\)")


@pytest.mark.parametrize("tutorial", TUTORIALS)
def test_every_command_is_run_by_a_test(tutorial: str) -> None:
    texts = [text for file in TESTS if f'"{tutorial}"' in (text := (ROOT / file).read_text())]
    shown = steps(tutorial)
    assert shown
    for name in shown:
        assert any(f'"{name}"' in text for text in texts), f"no test runs {name} of {tutorial}"


@pytest.mark.parametrize(
    "page", [*(FOLDER / name for name in TUTORIALS), ROOT / "README.md"], ids=lambda p: p.name
)
def test_links_lead_somewhere(page: Path) -> None:
    for file, anchor in _LINK.findall(page.read_text()):
        target = page.parent / file if file else page
        assert target.exists(), f"{page.name}: {file}"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
            assert anchor.removeprefix("#") in anchors, f"{page.name}: {file}{anchor}"


SUBMISSIONS = [
    pytest.param(tutorial, step, id=f"{tutorial}-{name}")
    for tutorial in TUTORIALS
    for name, step in steps(tutorial).items()
    if re.match(r"(edlz|python -m edlz.client) train", step.command)
    and re.search(r"--\S*image", step.command)
]


@pytest.mark.parametrize(("tutorial", "step"), SUBMISSIONS)
def test_submissions_are_understood(
    tutorial: str, step: Step, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("kubernetes")
    variables = {
        "PROJECT_ID": "p",
        "MNIST_DATA_DIR": "/data/mnist",
        "DOCKER_HUB_REPO": "reg.docker.com/user/",
    }
    for name, value in {**variables, "EDLZ_HOME": str(tmp_path / "home")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model_zoo").symlink_to(ROOT / "model_zoo")
    write_files(tutorial, tmp_path)
    words = shlex.split(os.path.expandvars(step.command.replace("\\\n", " ")))
    assert main([*words[words.index("train") :], "--dry-run"]) == 0


def test_shown_output_may_differ_in_numbers_only() -> None:
    step = Step("", ("accuracy 0.9 (v48) in 9s  digest a05dba74ee9d864e…",))
    step.check("before\naccuracy 0.705 (v188) in 1m20s digest 0705feed99 and more\nafter")
    with pytest.raises(AssertionError, match="not printed: accuracy"):
        step.check("precision 0.705 (v188) in 1m20s digest 0705feed99 and more")
    Step("", ("[INFO] [a.py:1:f] Loss = 1.5",)).check(
        "[2026-11-28 10:05:17,858] [INFO] [a.py:216:f] Loss = 0.25"
    )
    with pytest.raises(AssertionError):
        Step("", ("[INFO] [a.py:1:f] Loss = 1.5",)).check("[INFO] [b.py:216:f] Loss = 0.25")


README = "../../README.md"


def flags_of(command: str) -> dict[str, str]:
    words = shlex.split(command.replace("\\\n", " "))
    given = dict(word.removeprefix("--").partition("=")[::2] for word in words if word.startswith("--"))
    return {
        name: value
        for name, value in given.items()
        if name not in ("fresh", "job_name", "training_data", "validation_data")
    }


def test_the_readme_shows_the_demo() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    demo = re.search(r"\$\(EDLZ\) train (?:.*\\\n)+.*", makefile)
    assert demo is not None
    assert flags_of(steps(README)["train"].command) == flags_of(demo.group())


def test_the_readme_says_what_the_digest_depends_on() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    about = text[text.index("The digest is that of") :][:900]
    for word in (
        "--grads_to_wait",
        "--worker_threads",
        "--minibatch_size",
        "kind of processor",
        "TensorFlow",
        "NumPy",
    ):
        assert word in about, word
