"""The commands that the tutorials show, as they stand there, and the output that is shown below them.

A command is a block that begins with three backquotes and `sh NAME`; every one is run by a test.  The block
without a language that follows is its output, shortened: the tests compare each of its lines but for numbers.
What cannot be run here (`minikube start`, placeholders) stands in blocks without a name.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FOLDER", "ROOT", "Step", "finish", "run", "start", "steps", "write_files"]

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "tutorials"
LIMIT_S = 500.0

_BLOCK = re.compile(r"^```(\S*)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# When a log line was written, which tutorials may leave out, and the minutes of a duration.
_TIME = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] |\b\d+m (?=\d+s\b)")
_NUMBER = r"\b(?=[a-f]*\d)[0-9a-f]{6,}\b|\d[\d.,:]*(?:[smhd](?:\d+[smhd])?\b)?"  # digests, numbers, durations


@dataclass(frozen=True)
class Step:
    """A command of a tutorial.

    Attributes
    ----------
    command : str
        One or more lines for a shell.
    output : tuple of str
        The lines that the tutorial shows of what it prints; none if it shows none.
    """

    command: str
    output: tuple[str, ...] = ()

    def check(self, printed: str, *, but_for: Iterable[str] = ()) -> None:
        """Fail if a line that the tutorial shows is not among the printed ones.

        Numbers may differ, `…` stands for anything; so do the texts of `but_for`.
        """
        text = _TIME.sub("", printed)
        for line in self.output:
            pattern = "".join(_pattern(_TIME.sub("", line), tuple(but_for)))
            assert re.search(rf"^{pattern}\s*$", text, re.MULTILINE), (
                f"not printed: {line}\n---\n{text[-6000:]}"
            )


def _pattern(line: str, but_for: tuple[str, ...]) -> Iterable[str]:
    any_text = "|".join(re.escape(text) for text in ("…", *but_for))
    for part in re.split(rf"({any_text}|{_NUMBER}|\s+)", line.rstrip()):
        if part == "…" or part in but_for:
            yield ".*"
        elif re.fullmatch(_NUMBER, part):
            yield rf"(?:{_NUMBER}|-(?=\s|$))"  # a dash in a table: none at the moment
        else:
            yield r"\s+" if part.isspace() else re.escape(part)


def steps(tutorial: str) -> dict[str, Step]:
    """Return the commands of a tutorial (`minikube.md`) by their names, in order."""
    found: dict[str, Step] = {}
    blocks = _BLOCK.findall((FOLDER / tutorial).read_text(encoding="utf-8"))
    last = ""
    for language, name, text in blocks:
        if language == "sh" and name:
            assert name not in found, f"{tutorial} has two commands {name}"
            found[name] = Step(text)
        elif not language and last:
            found[last] = Step(found[last].command, tuple(line for line in text.splitlines() if line != "…"))
        last = name if language == "sh" else ""
    return found


def write_files(tutorial: str, place: Path) -> None:
    """Write the files that a tutorial shows, in blocks that begin with a language and a file's name."""
    for language, name, text in _BLOCK.findall((FOLDER / tutorial).read_text(encoding="utf-8")):
        if name and language != "sh":
            (place / name).write_text(text, encoding="utf-8")


def start(command: str, place: Path, variables: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
    """Start a command in a shell, in a folder that has the model zoo, with a home of its own there."""
    environment = {
        **os.environ,
        "PATH": f"{place / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "EDLZ_HOME": str(place / "home"),
        "CUDA_VISIBLE_DEVICES": "-1",
        **(variables or {}),
    }
    return subprocess.Popen(
        command,
        shell=True,
        cwd=place,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: "subprocess.Popen[str]", timeout_s: float = LIMIT_S) -> str:
    """Return what a command prints until it ends; fail unless it ends well."""
    output, _ = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, output[-6000:]
    return output


def run(command: str, place: Path, variables: Mapping[str, str] | None = None) -> str:
    """Run a command to its end and return what it prints."""
    return finish(start(command, place, variables))
