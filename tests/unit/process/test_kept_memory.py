"""What the C library is told, and that it need not be glibc."""

import ctypes
from types import SimpleNamespace

import pytest

from edlz.services.process.runtime import keep_freed_memory


def test_freed_memory_is_kept_up_to_a_limit_or_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[int, int] = {}
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=told.__setitem__))
    keep_freed_memory()
    assert told == {-1: 128 << 20, -3: 32 << 20}
    keep_freed_memory(whole_heaps=True)
    assert told == {-1: 128 << 20, -3: 32 << 20, -2: 64 << 20}


class OtherLibrary:
    """A C library without `mallopt`, which notes what is looked up in it."""

    def __init__(self) -> None:
        self.looked_up: list[str] = []

    def __getattr__(self, name: str) -> object:
        self.looked_up.append(name)
        raise AttributeError(name)


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    library = OtherLibrary()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    keep_freed_memory()
    assert library.looked_up == ["mallopt"]
