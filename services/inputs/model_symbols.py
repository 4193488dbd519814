"""What a Python file defines, by its syntax tree alone: nothing of the user's is imported or run."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ModuleSymbols", "read_symbols"]


@dataclass(frozen=True, slots=True)
class ModuleSymbols:
    """The names at a module's top level.

    Attributes
    ----------
    names : tuple of str
        In their order.
    is_open : bool
        Names may be bound that the tree does not show (`from x import *`, `__getattr__`).
    """

    names: tuple[str, ...]
    is_open: bool

    def __contains__(self, name: str) -> bool:
        return name in self.names or self.is_open


def read_symbols(path: Path) -> ModuleSymbols:
    """Return what a module defines.

    Raises
    ------
    SyntaxError
        If the file is not Python.
    OSError
        If it cannot be read.
    """
    tree = ast.parse(path.read_bytes(), str(path))
    bound = list(_bound(tree.body))
    names = tuple(dict.fromkeys(name for name in bound if name != "*"))
    return ModuleSymbols(names, is_open="*" in bound or "__getattr__" in bound)


def _bound(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield each name that these statements bind."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        else:
            yield from _bound_inside(node)


def _bound_inside(node: ast.stmt) -> Iterator[str]:
    """Yield the names that an assignment binds, or the branches of a compound statement."""
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if isinstance(node, ast.AnnAssign) and node.value is None:
            return
        for target in targets:
            yield from (inner.id for inner in ast.walk(target) if isinstance(inner, ast.Name))
        return
    for field in ("body", "orelse", "finalbody"):
        yield from _bound(getattr(node, field, ()))
    for handler in getattr(node, "handlers", ()):
        yield from _bound(handler.body)
