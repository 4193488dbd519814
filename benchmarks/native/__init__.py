"""The C++ that edlz is measured against, compiled when a benchmark asks for it."""

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import zmq

__all__ = ["CompilerMissing", "load", "program"]

# What a program of one machine would be built with: peers and limits are to be as fast as they can.
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wextra")


class CompilerMissing(Exception):
    """There is no g++ on this machine, or what it needs to link with."""


def load(name: str, folder: Path) -> ctypes.CDLL:
    """Compile `name`.cpp into a folder and load it.

    Raises
    ------
    CompilerMissing
        If there is no g++.
    subprocess.CalledProcessError
        If it does not compile.
    """
    return ctypes.CDLL(str(_compile(name, folder / f"{name}.so", ("-shared", "-fPIC"))))


def program(name: str, folder: Path) -> Path:
    """Compile `name`.cpp, which uses libzmq, into a program in a folder; see `load`."""
    return _compile(name, folder / name, _libzmq())


def _compile(name: str, target: Path, options: Sequence[str]) -> Path:
    compiler = shutil.which("g++")
    if compiler is None:
        raise CompilerMissing("g++ is not installed")
    source = Path(__file__).with_name(f"{name}.cpp")
    subprocess.run([compiler, *FLAGS, str(source), "-o", str(target), *options], check=True)
    return target


def _libzmq() -> tuple[str, ...]:
    """Link with the very library that pyzmq uses, so that both sides have the same one."""
    bundled = Path(zmq.__file__).parents[1] / "pyzmq.libs"
    libraries = sorted(bundled.glob("libzmq*.so*"))
    if not libraries:
        return ("-lzmq",)
    return (str(libraries[0]), f"-Wl,-rpath,{bundled}", f"-Wl,-rpath-link,{bundled}")
