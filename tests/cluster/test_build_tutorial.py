"""The commands for developers that `build_and_test.md` shows, on this checkout."""

import shutil
from pathlib import Path

import pytest

from tests.tutorials import ROOT, run, steps

pytestmark = pytest.mark.slow
STEPS = steps("build_and_test.md")


@pytest.mark.parametrize("name", ["unit", "emulated"])
def test_tests_are_run(name: str, tmp_path: Path) -> None:
    assert " passed" in run(STEPS[name].command, ROOT, {"EDLZ_HOME": str(tmp_path)})


def test_the_style_is_checked(tmp_path: Path) -> None:
    if shutil.which("ruff") is None or shutil.which("lint-imports") is None:
        pytest.skip("there is no ruff or no lint-imports")
    run("set -e\n" + STEPS["style"].command, ROOT, {"EDLZ_HOME": str(tmp_path)})
