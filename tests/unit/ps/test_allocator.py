"""What the C library is told, and that it need not be glibc."""

import ctypes
from types import SimpleNamespace

import pytest

from edlz.services.ps.allocator import keep_freed_memory


def test_freed_memory_is_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[int, int] = {}
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=told.__setitem__))
    keep_freed_memory()
    assert told == {-1: 128 << 20, -3: 32 << 20}


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    keep_freed_memory()
