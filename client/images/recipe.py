"""The Dockerfile of an image that holds edlz and a model zoo, as text made from what goes into it.

Reads no file and knows no daemon.
"""

import json
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from edlz.k8s.flags.syntax import is_image
from edlz.services.errors import ConfigError

__all__ = [
    "CLUSTER_SPEC_FOLDER",
    "MARK",
    "MODEL_FOLDER",
    "MODEL_ZOO",
    "PIP_SETTINGS",
    "Recipe",
    "base_of",
    "check_image_name",
    "check_no_password",
    "dockerfile",
    "file_name",
    "own_base",
]

MODEL_ZOO, MODEL_FOLDER, CLUSTER_SPEC_FOLDER = "/model_zoo", "/model", "/cluster_spec"
"""Where an image has the zoo, a model that lies outside of one, and the cluster specification."""

PIP_SETTINGS = ("PIP_INDEX_URL", "PIP_TRUSTED_HOST")
"""Build arguments, which pip takes from its environment."""

MARK = "# Written by `edlz zoo init`."
"""The first line of a Dockerfile that may be written again."""

_FROM = re.compile(r"^\s*FROM\s+(?:--\S+\s+)*(?P<image>\S+)", re.IGNORECASE | re.MULTILINE)
_LOGS_IN = re.compile(r"[^/]*//[^/?#]*@")
_PIP = "python -m pip install --progress-bar=off"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """What goes into an image.

    Attributes
    ----------
    base_image : str
        The image to begin with; where it has no edlz, that is installed.
    model_zoo, model, cluster_spec : str
        Paths in the build context, with `/`; empty: none.
    local_pkg_dir : str
        Folder in the build context with the wheels of edlz; empty: the package index.
    extra_pypi_index : str
        Address of another package index.
    ca_bundle : str
        PEM file in the build context, whose certificates count beside the system's; empty: none.
    """

    base_image: str
    model_zoo: str = ""
    model: str = ""
    cluster_spec: str = ""
    local_pkg_dir: str = ""
    extra_pypi_index: str = ""
    ca_bundle: str = ""


def own_base() -> str:
    """Return the name of the image that this version of edlz builds on, unless told otherwise."""
    return f"edlz:{_version()}"


def dockerfile(recipe: Recipe) -> str:
    """Return the Dockerfile of an image.  It needs no BuildKit.

    Raises
    ------
    ConfigError
        If the base image is no image's name, or the index or a path cannot stand in a Dockerfile, or the
        index is named with a password.
    """
    check_image_name(recipe.base_image, "base_image")
    lines = [
        f"{MARK} Change it as you like; without this line it is not written again.",
        f"FROM {recipe.base_image}",
        "USER root",
        "ARG PIP_BREAK_SYSTEM_PACKAGES=1",  # there is no other system than edlz in this image
        "ARG PIP_NO_CACHE_DIR=1",
        "ARG PIP_ROOT_USER_ACTION=ignore",
        *(f"ARG {name}" for name in PIP_SETTINGS),
    ]
    if recipe.ca_bundle:
        lines += _trust(recipe.ca_bundle)
    if recipe.extra_pypi_index:
        index = _one_word(recipe.extra_pypi_index, "extra_pypi_index")
        check_no_password(index, "--extra_pypi_index", "leave it out")
        lines.append(f"ARG PIP_EXTRA_INDEX_URL={index}")
    lines += _install_edlz(recipe.local_pkg_dir)
    if recipe.model_zoo:
        lines += _copy_zoo(recipe.model_zoo)
    if recipe.model:
        lines.append(_copy(recipe.model, f"{MODEL_FOLDER}/{file_name(recipe.model)}"))
    if recipe.cluster_spec:
        lines.append(_copy(recipe.cluster_spec, f"{CLUSTER_SPEC_FOLDER}/{file_name(recipe.cluster_spec)}"))
    lines += ["WORKDIR /", "USER 1000:1000"]
    return "\n".join(lines) + "\n"


def base_of(text: str) -> str:
    """Return the image that a Dockerfile begins with; nothing if it has no FROM."""
    found = _FROM.search(text)
    return found["image"] if found else ""


def check_image_name(name: str, flag: str) -> str:
    """Return an image's name, or raise ConfigError if Docker would refuse it."""
    if not is_image(name):
        raise ConfigError(
            f'--{flag}="{name}" is no image: [REGISTRY/]NAME[:TAG]', f"e.g. --{flag}=edlz:mnist"
        )
    return name


def check_no_password(url: str, setting: str, without: str) -> str:
    """Return the address of a package index, or raise ConfigError if whoever has the image could log in there.

    What a step of a build is given stays in the image's history; BuildKit's secrets would not, but no build here asks
    for BuildKit.

    Parameters
    ----------
    setting : str
        What it is the value of.
    without : str
        How to go on without it.
    """
    if not _LOGS_IN.match(url):
        return url
    raise ConfigError(
        f"{setting} has a user name or a password in it: the image's history would show it",
        f"{without}; what only that index has, goes into a base image first, with docker build --secret",
    )


def file_name(path: str) -> str:
    """Return the last part of a path with `/`."""
    return path.rstrip("/").rpartition("/")[2]


def _install_edlz(local_pkg_dir: str) -> list[str]:
    if not local_pkg_dir:
        found = "python -c 'import edlz.services.master' 2>/dev/null"
        return [f"RUN {found} || {_PIP} 'edlz=={_version()}'"]
    return [
        _copy(f"{local_pkg_dir}/*.whl", "/tmp/edlz/"),
        # The second time without their requirements, so that wheels of a version that is there replace it.
        f"RUN {_PIP} /tmp/edlz/*.whl \\\n"
        f" && {_PIP} --no-deps --force-reinstall /tmp/edlz/*.whl && rm -r /tmp/edlz",
    ]


def _trust(ca_bundle: str) -> list[str]:
    """Let pip trust the system's certificates and those given, while the image is built."""
    return [
        _copy(ca_bundle, "/tmp/ca/given.pem"),
        "RUN cat $(ls /etc/ssl/certs/ca-certificates.crt 2>/dev/null) /tmp/ca/given.pem >/tmp/ca/bundle.pem",
        "ARG PIP_CERT=/tmp/ca/bundle.pem",
    ]


def _copy_zoo(zoo: str) -> list[str]:
    """The requirements come first, so that a change of a model does not install them again."""
    folder = "" if zoo == "." else f"{zoo}/"
    return [
        # The pattern, and a file that is always there: COPY fails where nothing matches.
        f'COPY ["Dockerfile", {json.dumps(f"{folder}requirements.tx[t]")}, "/tmp/zoo/"]',
        "RUN if [ -f /tmp/zoo/requirements.txt ]; then \\\n"
        f"      {_PIP} -r /tmp/zoo/requirements.txt; fi && rm -r /tmp/zoo",
        _copy(zoo, MODEL_ZOO),
    ]


def _copy(source: str, target: str) -> str:
    if "\n" in source:
        raise ConfigError(f"{source!r} cannot stand in a Dockerfile", "rename it")
    return f"COPY --chown=1000:1000 {json.dumps([source, target], ensure_ascii=False)}"


def _one_word(text: str, flag: str) -> str:
    if not re.fullmatch(r"[!-~]+", text) or "$" in text or '"' in text:
        raise ConfigError(
            f"--{flag}={text!r} is no address", f"e.g. --{flag}=https://mirror.example.com/simple"
        )
    return text


def _version() -> str:
    try:
        return version("edlz")
    except PackageNotFoundError:
        return "0.0.0"
