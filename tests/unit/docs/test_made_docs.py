"""What the docs say of states and messages is what the code says."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_docs", ROOT / "scripts" / "make_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["architecture.md", "protocol.md"])
def test_a_page_is_as_the_code_has_it(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    assert generator().made(page, text) == text, "the code has moved on: python scripts/make_docs.py"


def test_every_page_is_tested() -> None:
    assert list(generator().PAGES) == ["architecture.md", "protocol.md"]


def test_a_page_without_a_place_is_told() -> None:
    with pytest.raises(ValueError, match=r"architecture\.md has no place for 'a task in hand'"):
        generator().made("architecture.md", "# How edlz is built\n")
