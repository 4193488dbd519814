"""Which software this is: packages and whether they fit, compiled kernels, the model zoo, what the environment says."""

import os
import platform
import re
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version

from edlz.client.screen.checks import Check
from edlz.client.screen.wording import count_of
from edlz.services.configuration.job_config import JobConfig, flags
from edlz.services.inputs.model_location import model_zoo_directory, zoo_modules
from edlz.services.redaction import without_passwords

__all__ = ["check_kernels", "check_packages", "check_zoo", "environment_of", "versions"]

_TOLD = ("edlz", "tensorflow", "keras", "numpy", "pyzmq", "msgspec", "uvloop", "kubernetes", "docker")
_REINSTALL = "pip install --force-reinstall --no-deps edlz, or in a clone: make"
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_TOLD_VARIABLES = re.compile(
    r"EDLZ_|TF_(?:CPP|DETERMINISTIC|ENABLE|FORCE|GPU|NUM|USE|XLA)_|KERAS_(?:BACKEND|HOME)$|CUDA_VISIBLE_DEVICES$"
    r"|OMP_NUM_THREADS$|MALLOC_|LD_PRELOAD$|PYTHON[A-Z]+$|TMPDIR$|KUBECONFIG$|DOCKER_HOST$|(?i:https?_proxy|no_proxy|all_proxy)$|CI$|TERM$|NO_COLOR$|FORCE_COLOR$|LANG$|LC_ALL$"
)
_OWN = ("EDLZ_HOME", "EDLZ_DEBUG")


def versions() -> dict[str, str]:
    """Return the versions that a bug report needs; a package that is not installed is empty."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    return found | {name: _version(name) for name in _TOLD}


def check_packages() -> Check:
    """Return whether the packages that edlz needs are there, in versions that fit."""
    try:
        wanted = [line for line in requires("edlz") or () if "extra ==" not in line]
    except PackageNotFoundError:
        return Check("warn", "packages", "edlz itself is not installed as a package", _REINSTALL)
    wrong = [found for line in wanted if (found := _unmet(line))]
    if wrong:
        names = " ".join(f"'{line}'" for line, _ in wrong)
        return Check("no", "packages", "; ".join(text for _, text in wrong), f"pip install {names}")
    told = ("tensorflow", "keras", "numpy", "pyzmq")
    return Check("ok", "packages", ", ".join(f"{name} {_version(name)}" for name in told))


def check_kernels() -> Check:
    """Return which variant of the compiled loops this processor gets."""
    try:
        dense = import_module("edlz.core_ext.dense")
        import_module("edlz.core_ext.table")
    except ImportError as error:
        return Check("no", "kernels", f"the compiled core cannot be loaded: {error}", _REINSTALL)
    return Check("ok", "kernels", f"compiled, {dense.instruction_set()}")


def check_zoo() -> Check:
    """Return which model zoo a job would take its models from."""
    zoo = model_zoo_directory(JobConfig())
    modules = zoo_modules(zoo)
    if not modules:
        return Check("no", "model zoo", f"{zoo} holds no models", "name the folder of yours: --model_zoo=DIR")
    return Check("ok", "model zoo", f"{count_of(len(modules), 'module')} in {zoo}")


def environment_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that say something of edlz, without what might be secret.

    Of flags only numbers, choices and switches are told: others may hold a user's names, paths and keys.
    """
    open_flags = {f"EDLZ_{about.name.upper()}" for about in flags() if about.kind != "text" or about.choices}
    found = {}
    for name in sorted(name for name in environ if _TOLD_VARIABLES.match(name)):
        is_open = not name.startswith("EDLZ_") or name in open_flags or name in _OWN
        found[name] = without_passwords(environ[name]) if is_open else "(set)"
    return found


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _unmet(requirement: str) -> tuple[str, str] | None:
    """Return a requirement that is not met, without its marker, and what is wrong; None if nothing is."""
    bare, _, marker = (part.strip() for part in requirement.partition(";"))
    if marker and "win32" in marker and os.name == "nt":
        return None
    name = (_NAME.match(bare) or [bare])[0]
    there = _version(name)
    if not there:
        return bare, f"{name} is not installed"
    try:
        from packaging.requirements import Requirement
    except ImportError:  # it comes with Keras; without it presence is what can be seen
        return None
    if Requirement(bare).specifier.contains(there, prereleases=True):
        return None
    return bare, f"{name} is {there}, and edlz needs {bare}"
