"""What matters of an error's text, once it has been through TensorFlow, Keras, AutoGraph and perhaps a log.

Owns which files are a library's (edlz is one) and which line of a message says what is wrong; it neither catches
anything nor decides what becomes of it.
"""

import re
import sysconfig
from pathlib import Path

import edlz.services

__all__ = ["is_library", "main_line"]

_MOST_LETTERS = 500
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_GENERATED = ("<", "__autograph_generated")  # <frozen importlib>, <string>
_OWN_FOLDERS = ("api", "client", "core_ext", "k8s", "services")
_ZOO = "model_zoo"
_STDLIB = Path(sysconfig.get_path("stdlib")).resolve()
_A_STDLIB = re.compile(r"/lib/python3\.\d+/")  # on whatever machine
_OURS = Path(edlz.services.__file__ or "").resolve().parent.parent

_NOISE = re.compile(
    r"Error in user-defined function passed to \S+ transformation with iterator: \S+: "
    r"|\{\{function_node [^}]*\}\}|\[\[\{\{node [^}]*\}\}\]\]|\[Op:[^\]]*\](?: name:.*)?|\(\d+\) [A-Z_]+: "
)
_KERAS = re.compile(r"Exception encountered when calling [^\n]*\n\n(.*?)\n\nArguments received", re.DOTALL)
_TRANSLATED = re.compile(
    r"outer_factory\.<locals>\.inner_factory\.<locals>\.tf__(\w+)"
)  # AutoGraph's name of a function
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NESTED = (
    "in user code:",
    "Traceback (most recent call last)",
    "Detected at node",
    "Graph execution error",
)


def is_library(path: str, home: Path | None = None) -> bool:
    """Whether a file of a traceback is installed, generated or of edlz: not where the user's mistake is.

    Parameters
    ----------
    home : Path, optional
        A resolved folder that is the user's although it may be installed itself, as a model zoo is.
    """
    if Path(path).name.startswith(_GENERATED) or not path.endswith(".py"):  # compiled: "uvloop/loop.pyx"
        return True
    try:
        place = Path(path).resolve()
    except (OSError, ValueError, RuntimeError):
        return False
    if any(place.is_relative_to(_OURS / name) for name in _OWN_FOLDERS):
        return True
    for of_user in (home, _OURS / _ZOO):
        if of_user is not None and place.is_relative_to(of_user):
            return not _INSTALLED.isdisjoint(place.relative_to(of_user).parts)
    return (
        not _INSTALLED.isdisjoint(Path(path).parts)
        or _A_STDLIB.search(path) is not None
        or place.is_relative_to(_STDLIB)
    )


def main_line(text: str) -> str:
    """Return the one line of an error's message that says what is wrong; nothing if none does."""
    text = _TRANSLATED.sub(r"\1", _COLOUR.sub("", text))
    inner = _KERAS.search(text)
    if inner:
        text = inner.group(1).rpartition("Error encountered:")[2]
    lines = [line.strip() for line in _NOISE.sub(" ", text).splitlines()]
    lines = [line for line in lines if line and line.strip("^~ ")]
    if not lines:
        return ""
    line = lines[-1] if any(mark in text for mark in _NESTED) else lines[0]
    return re.sub(r"\s+", " ", line)[:_MOST_LETTERS]
