"""Where a model's code lies: the one set of rules, for the command line and the worker alike.

Finds files and names; imports nothing of the user's.
"""

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from edlz.services.configuration.job_config import JobConfig
from edlz.services.configuration.nearest import nearest
from edlz.services.errors import ModelError

__all__ = [
    "FEED_NAMES",
    "MODEL_NAMES",
    "ModelLocation",
    "locate_attribute",
    "locate_model",
    "model_zoo_directory",
    "zoo_modules",
]

MODEL_NAMES = ("custom_model", "CustomModel", "model")
"""What the model may be called in a module that was named without a symbol: first one found."""

FEED_NAMES = ("feed", "dataset_fn", "input_fn")
"""What the parsing function may be called, unless `--feed` says so."""

_MOST_MODULES, _DEEPEST = 2000, 3  # what is looked through for a near name


@dataclass(frozen=True, slots=True)
class ModelLocation:
    """A Python file, and the name in it; None: one of MODEL_NAMES."""

    path: Path
    symbol: str | None


def locate_model(config: JobConfig) -> ModelLocation:
    """Return where the model's code lies.

    `--model_file=F` is the file F.  `--model_def=D` that is a directory is D/<name of D>.py, and D.py if
    that exists.  Otherwise `--model_def=pkg.module.symbol` is `symbol` in pkg/module.py of the model zoo.

    Raises
    ------
    ModelError
        If there is no such file.
    """
    if config.model_file:
        path = Path(config.model_file)
        if path.is_dir():
            raise ModelError(f'--model_file="{config.model_file}" is a folder', _file_in(path))
        if not path.is_file():
            raise ModelError(f'--model_file="{config.model_file}" does not exist', _near_sibling(path))
        return ModelLocation(path, None)
    given = Path(config.model_def)
    for path in (given, given / f"{given.name}.py", given.with_name(f"{given.name}.py")):
        if path.is_file() and path.suffix == ".py":
            return ModelLocation(path, None)
    if given.is_dir():
        raise ModelError(
            f"no {given.name}.py in {given} (for --model_def={config.model_def})",
            "the module of a directory D is D/D.py; for another one: --model_file=FILE",
        )
    if "/" in config.model_def:
        raise ModelError(f'--model_def="{config.model_def}" does not exist', _near_sibling(given))
    return _located(config, config.model_def, "model_def")


def locate_attribute(config: JobConfig, flag: str, model: ModelLocation) -> ModelLocation:
    """Return where a function lies that a flag names: `loss`, `optimizer`, `feed`, `eval_metrics_fn`.

    A plain name is one of the model's module; a dotted one, `pkg.module.symbol`, of another module of the
    model zoo.

    Raises
    ------
    ModelError
        If there is no such module.
    """
    value: str = getattr(config, flag)
    return _located(config, value, flag) if "." in value else ModelLocation(model.path, value)


def model_zoo_directory(config: JobConfig) -> Path:
    """Return the folder in which dotted names are looked up: `--model_zoo`, or the installed zoo.

    Raises
    ------
    ModelError
        If neither is there.
    """
    if config.model_zoo:
        return Path(config.model_zoo)
    spec = find_spec("edlz.model_zoo")
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        raise ModelError("the model zoo of edlz is not installed", "name yours: --model_zoo=DIR")
    return Path(places[0])


def zoo_modules(zoo: Path) -> list[str]:
    """Return the dotted names of the modules in a model zoo, sorted; at most 2,000, and three folders deep."""
    names: list[str] = []
    for folder, inside, files in os.walk(zoo):
        parts = Path(folder).relative_to(zoo).parts
        inside[:] = sorted(name for name in inside if name.isidentifier() and len(parts) < _DEEPEST)
        stems = (name.removesuffix(".py") for name in files if name.endswith(".py"))
        names += [".".join((*parts, stem)) for stem in stems if stem.isidentifier() and stem != "__init__"]
        if len(names) >= _MOST_MODULES:
            break
    return sorted(names)[:_MOST_MODULES]


def _located(config: JobConfig, dotted: str, flag: str) -> ModelLocation:
    zoo = model_zoo_directory(config)
    where = config.model_zoo or "the installed model zoo"
    if not zoo.is_dir():
        raise ModelError(f'--model_zoo="{config.model_zoo}" is no directory', _near_sibling(zoo))
    module, _, symbol = dotted.rpartition(".")
    parts = module.split(".")
    if not all(part.isidentifier() for part in (*parts, symbol)):
        raise ModelError(
            f'--{flag}="{dotted}" is neither a path that exists nor module.symbol',
            _nearest_modules(zoo, dotted, symbol) or "e.g. mnist.mnist_functional_api.custom_model",
        )
    path = zoo.joinpath(*parts).with_suffix(".py")
    if path.is_file():
        return ModelLocation(path, symbol)
    raise ModelError(
        f"no {path.relative_to(zoo)} in {where} (for --{flag}={dotted})",
        _nearest_modules(zoo, dotted, symbol) or _elsewhere(config, flag, symbol),
    )


def _elsewhere(config: JobConfig, flag: str, symbol: str) -> str:
    """Say where else a function may be that is in no module with a name like that."""
    if flag == "model_def":
        return "--model_zoo=DIR says in which folder it lies; --model_file=FILE names a file"
    return f"--model_zoo=DIR says in which folder it lies; --{flag}={symbol} is one of the model's own file"


def _nearest_modules(zoo: Path, dotted: str, symbol: str) -> str:
    module = dotted.rpartition(".")[0]
    known = zoo_modules(zoo)
    if dotted in known:  # the symbol was left out
        return f"nearest: {dotted}.{MODEL_NAMES[0]}"
    near = nearest(module or dotted, known)
    return (
        f"nearest: {', '.join(f'{name}.{symbol if module else MODEL_NAMES[0]}' for name in near)}"
        if near
        else ""
    )


def _file_in(folder: Path) -> str:
    files = sorted(folder.glob("*.py"))
    return f"name a file in it{f': --model_file={files[0]}' if files else ''}"


def _near_sibling(path: Path) -> str:
    siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    near = nearest(path.name, siblings)
    return f"nearest: {path.parent / near[0]}" if near else ""
