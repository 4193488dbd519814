"""Rooms of tests tell what they need: those of the cores import no TensorFlow, which takes seconds."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
NEEDS_TENSORFLOW = {"api", "engine", "export", "models", "zoo"}  # and others may start processes that do
ROOMS = sorted(path.name for path in TESTS.iterdir() if path.is_dir() and any(path.rglob("test_*.py")))
IMPORT_WITHOUT = """
import importlib.util, sys

class Refuse:
    def find_spec(self, name, path, target=None):
        if name in ("tensorflow", "keras"):
            raise ImportError(f"{name} is imported here")

sys.path.insert(0, sys.argv[1])
sys.meta_path.insert(0, Refuse())
for number, path in enumerate(sys.argv[2:]):
    spec = importlib.util.spec_from_file_location(f"test_{number}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        sys.exit(f"{path}: {error}")
"""


def import_without_tensorflow(rooms: list[str]) -> subprocess.CompletedProcess[str]:
    files = [str(path) for room in rooms for path in sorted((TESTS / room).rglob("test_*.py"))]
    assert files
    command = [sys.executable, "-c", IMPORT_WITHOUT, str(TESTS.parents[1]), *files]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_rooms_of_cores_import_no_tensorflow() -> None:
    done = import_without_tensorflow([room for room in ROOMS if room not in NEEDS_TENSORFLOW])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("room", ["engine", "zoo"])
def test_others_do(room: str) -> None:
    done = import_without_tensorflow([room])
    assert done.returncode == 1
    assert "is imported here" in done.stderr
