"""What the shell may complete a value with: choices, models by listing files, local jobs, paths.

Never imports TensorFlow or a model.
"""

from collections.abc import Callable
from pathlib import Path

from edlz.client.cluster.index import list_places
from edlz.client.job_files.job_index import list_jobs
from edlz.client.screen.job_view import ENDED_STATES
from edlz.services.configuration.flags import Flag
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import EdlzError
from edlz.services.inputs.model_location import FEED_NAMES, MODEL_NAMES, model_zoo_directory, zoo_modules
from edlz.services.inputs.model_symbols import read_symbols

__all__ = ["complete_checkpoint", "complete_ended_state", "complete_job", "complete_value"]

_PATHS = frozenset(("FILE", "DIR", "PATH"))


def complete_value(about: Flag) -> Callable[[str], list[str]]:
    """Return the function that completes a flag's value."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in _candidates(about, incomplete) if word.startswith(incomplete)]

    return complete


def complete_checkpoint(incomplete: str) -> list[str]:
    """Return the folders and the local jobs that a word may become."""
    folders = [path for path in _paths(incomplete) if path.endswith("/")]
    return [*complete_job(incomplete), *(path for path in folders if path.startswith(incomplete))]


def complete_job(incomplete: str) -> list[str]:
    """Return the names of jobs, here and submitted from here, that a word may become."""
    names = dict.fromkeys([*(job.word for job in list_jobs()), *(place.name for place in list_places())])
    return [name for name in names if name.startswith(incomplete)]


def complete_ended_state(incomplete: str) -> list[str]:
    """Return the states of jobs that have ended that a word may become."""
    return [state for state in ENDED_STATES if state.startswith(incomplete.lower())]


def _candidates(about: Flag, incomplete: str) -> list[str]:
    if about.name == "model_def":
        return [*_models(), *_paths(incomplete)]
    if about.kind == "yes or no":
        return ["yes", "no"]
    if about.choices:
        return [choice for choice in about.choices if choice not in about.later]
    return _paths(incomplete) if about.metavar in _PATHS else []


def _models() -> list[str]:
    """Return the models of the zoo that a job can be made of: not every module there holds one."""
    try:
        zoo = model_zoo_directory(JobConfig())
        modules = zoo_modules(zoo)
    except EdlzError:
        return []  # no zoo, nothing to complete
    found = ((module, _model_in(zoo.joinpath(*module.split(".")).with_suffix(".py"))) for module in modules)
    return [f"{module}.{symbol}" for module, symbol in found if symbol]


def _model_in(path: Path) -> str:
    """Return the name of the model that a module defines, with all that training needs; nothing if it does not."""
    try:
        symbols = read_symbols(path)
    except (SyntaxError, ValueError, OSError):
        return ""
    is_whole = all(name in symbols for name in ("loss", "optimizer")) and any(
        name in symbols for name in FEED_NAMES
    )
    return next((name for name in MODEL_NAMES if name in symbols), "") if is_whole else ""


def _paths(incomplete: str) -> list[str]:
    head, separator, _ = incomplete.rpartition("/")
    folder = Path(head + separator or ".")
    if not folder.is_dir():
        return []
    return sorted(
        f"{head}{separator}{entry.name}{'/' if entry.is_dir() else ''}" for entry in folder.iterdir()
    )
