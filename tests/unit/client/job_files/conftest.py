"""A home of its own for each test of a command."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_logging import logging_restored


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    for name in ("FORCE_COLOR", "EDLZ_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    with logging_restored():
        yield
