"""What scripts and pages name of the code is there: no tool looks into them when code moves."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = ("api", "client", "core_ext", "k8s", "model_zoo", "services")
PLACES = (*FOLDERS, "benchmarks", "docker", "docs", "scripts")
MODULE = re.compile(rf"(?<![\w./-])edlz\.(?:{'|'.join(FOLDERS)})(?:\.[A-Za-z_]\w*)*")
LOGGED = re.compile(r"\[(\w+\.py):\d+:(\w+)\]")
FILE = re.compile(
    rf"(?<![\w./{{}}*-])(?:{'|'.join((*PLACES, 'tests'))})/[\w./-]*\w\.(?:py|pyx|c|h|sh|md|yaml)\b"
)


def texts() -> dict[str, str]:
    """Return what is in the files that are not code: pages, scripts, manifests, settings."""
    files = [path for path in ROOT.iterdir() if path.is_file()]
    for place in PLACES:
        files += [path for path in (ROOT / place).rglob("*") if path.is_file()]
    found = {}
    for path in sorted(files):
        if path.suffix in (".md", ".sh", ".yaml", ".toml", ".ini", "") or path.name.startswith("Dockerfile"):
            found[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8", errors="replace")
    return found


def is_there(name: str) -> bool:
    """Tell whether a name is that of a module, or of something that one speaks of."""
    path, parts = ROOT, name.split(".")[1:]
    while parts and (path / parts[0]).is_dir():
        path /= parts.pop(0)
    if parts:
        sources = [path / f"{parts[0]}{suffix}" for suffix in (".py", ".pyi")]
        source = next((one for one in sources if one.is_file()), None)
        path, parts = (path / "__init__.py", parts) if source is None else (source, parts[1:])
    if not parts:
        return True
    return path.is_file() and re.search(rf"\b{parts[0]}\b", path.read_text(encoding="utf-8")) is not None


@pytest.mark.parametrize("pattern", [MODULE, FILE], ids=["modules", "files"])
def test_what_is_named_is_there(pattern: re.Pattern[str]) -> None:
    def named() -> Iterator[tuple[str, str]]:
        for file, text in texts().items():
            yield from ((file, name) for name in pattern.findall(text))

    found = list(named())
    assert len(found) > 20
    check = is_there if pattern is MODULE else lambda name: (ROOT / name).is_file()
    assert [(file, name) for file, name in found if not check(name)] == []


def test_a_name_that_is_not_there_is_found() -> None:
    assert is_there("edlz.services.worker")
    assert is_there("edlz.model_zoo.datasets.built_in_sample")
    assert not is_there("edlz.model_zoo.datasets.no_such_thing")
    assert not is_there("edlz.model_zoo.conversion.sample")


def test_lines_of_logs_come_from_where_they_are_said_to_come_from() -> None:
    sources: dict[str, str] = {}
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            sources[path.name] = sources.get(path.name, "") + path.read_text(encoding="utf-8")
    found = {(file, *line) for file, text in texts().items() for line in LOGGED.findall(text)}
    assert len(found) > 10
    is_told = {one: f"def {one[2]}(" in sources.get(one[1], "") for one in found}
    assert [one for one, is_right in sorted(is_told.items()) if not is_right] == []
