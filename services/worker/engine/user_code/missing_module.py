"""What to do about a module that the user's code imports and that is not there."""

import importlib.util
import os
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

__all__ = ["missing_module_help"]

# Names of packages that are other than those of their modules, of those that models import most.
_PACKAGES = {
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
_MOST_FOLDERS = 200


def missing_module_help(name: str, folder: Path) -> str:
    """Return what to do.

    Parameters
    ----------
    name : str
        The module, dotted.
    folder : Path
        That the user's code lies in.
    """
    top = name.partition(".")[0]
    if top != name and _is_there(top):
        return f"{_installed(top)} has no {name}: another version of it has, or the name is another"
    found = next(_near(top, folder), None)
    if found is not None:
        return f"{found} is not where Python looks: move it beside the model's file"
    return f"pip install {_PACKAGES.get(top, top)}; for the image add it to model_zoo/requirements.txt"


def _is_there(top: str) -> bool:
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def _installed(top: str) -> str:
    """Return `keras 3.9.2`; of a module of the user's, its name."""
    try:
        return f"{top} {version(packages_distributions()[top][0])}"
    except (KeyError, PackageNotFoundError):
        return top


def _near(top: str, folder: Path) -> Iterator[str]:
    """Yield where the user has a file or a folder of that name, in or above the folder of the model's code."""
    for place, (parent, folders, files) in enumerate(os.walk(folder)):
        if place >= _MOST_FOLDERS:
            break
        folders[:] = [name for name in folders if not name.startswith(".") and name != "site-packages"]
        if f"{top}.py" in files:
            yield os.path.relpath(Path(parent, f"{top}.py"))
        elif top in folders and any(Path(parent, top).glob("*.py")):
            yield os.path.relpath(Path(parent, top))
    for beside in (folder.parent, Path.cwd()):
        for candidate in (beside / f"{top}.py", beside / top / "__init__.py"):
            if candidate.is_file():
                yield os.path.relpath(candidate if candidate.stem == top else candidate.parent)
