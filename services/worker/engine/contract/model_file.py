"""Loading a model's Python file by its path.

The folders around the file become importable, behind everything that is installed, so that a sibling
named like a package does not shadow it.
"""

import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from edlz.services.errors import ModelError
from edlz.services.worker.engine.user_code.user_code import UserCode

__all__ = ["load_file", "module_name"]


def load_file(path: Path, zoo: Path | None, code: UserCode) -> ModuleType:
    """Execute a Python file as a module, anew at each call.

    Its own folder, the model zoo and the folder that the zoo lies in are appended to the import path:
    `import sibling`, `from mnist.data import x` and `from model_zoo.mnist.data import x` all work.

    Parameters
    ----------
    path : Path
    zoo : Path or None
        The model zoo, if the file lies in it; the module is named from there: `mnist.mnist_subclass`.

    Raises
    ------
    ModelError
        If the file cannot be read, or raises.
    """
    path = path.resolve()
    _make_importable([path.parent] if zoo is None else [path.parent, zoo.resolve(), zoo.resolve().parent])
    with code.running(f"the package of {_shown(path)}"):
        name = _importable_name(module_name(path, zoo), path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModelError(f"{path} is no Python file", "name a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    with _known_as(name, module), code.running(_shown(path)):
        _execute(spec.loader, module)
    return module


def _make_importable(folders: list[Path]) -> None:
    """Append folders to the import path."""
    for folder in map(str, folders):
        if folder not in sys.path:
            sys.path.append(folder)
    importlib.invalidate_caches()


@contextmanager
def _known_as(name: str, module: ModuleType) -> Iterator[None]:
    """Register a module while it runs, since dataclasses and siblings look it up, and for good if that goes well."""
    before = sys.modules.get(name)
    sys.modules[name] = module
    package, _, stem = name.rpartition(".")
    if package:  # as importing it would have done
        setattr(sys.modules[package], stem, module)
    try:
        yield
    except ModelError:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise


def module_name(path: Path, zoo: Path | None) -> str:
    """Return what the module is called in messages: its dotted place in the zoo, or its stem."""
    if zoo is not None:
        try:
            return ".".join(path.resolve().relative_to(zoo.resolve()).with_suffix("").parts)
        except ValueError:
            pass
    return path.stem


def _execute(loader: object, module: ModuleType) -> None:
    assert isinstance(loader, importlib.machinery.SourceFileLoader)
    loader.exec_module(module)


def _importable_name(dotted: str, path: Path) -> str:
    """Return the dotted name if importing it would give this file, so that siblings that import the model
    get this very module; otherwise a private one, which hides no other module."""
    loaded = sys.modules.get(dotted)
    if loaded is not None:
        origin = getattr(loaded, "__file__", None)
    else:
        try:
            spec = importlib.util.find_spec(dotted)  # runs the __init__.py of its packages
        except ModuleNotFoundError:
            spec = None
        origin = spec.origin if spec is not None else None
    is_this = origin is not None and Path(origin).resolve() == path
    return dotted if is_this else f"_edlz_{path.stem}"


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
