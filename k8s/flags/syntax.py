"""What the grammars of the cluster flags share: a problem that cites flag and part, names of Kubernetes and of images."""

import re
from collections.abc import Collection

from edlz.services.configuration.nearest import did_you_mean, nearest
from edlz.services.configuration.problems import Problem

__all__ = [
    "MAX_LABEL",
    "MAX_SUBDOMAIN",
    "is_image",
    "is_label",
    "is_subdomain",
    "problem_of",
    "problem_of_value",
    "unknown",
]

MAX_LABEL, MAX_SUBDOMAIN = 63, 253  # letters
_MAX_IMAGE = 255  # letters
_HOST = r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:\d{1,5})?"
_PART = r"[a-z0-9]+((\.|_{1,2}|-+)[a-z0-9]+)*"
_IMAGE = re.compile(rf"({_HOST}/)?{_PART}(/{_PART})*(:\w[\w.-]{{0,127}})?(@sha256:[0-9a-f]{{64}})?", re.ASCII)
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")


def is_image(text: str) -> bool:
    """Whether a text is the name of an image: [REGISTRY/]NAME[:TAG][@DIGEST]."""
    return len(text) <= _MAX_IMAGE and _IMAGE.fullmatch(text) is not None


def is_label(text: str) -> bool:
    """Whether a text is a DNS label: the name of a container, a service, a volume, a namespace."""
    return len(text) <= MAX_LABEL and _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Whether a text is a DNS subdomain: the name of a pod, a claim, a secret, a priority class."""
    return len(text) <= MAX_SUBDOMAIN and _SUBDOMAIN.fullmatch(text) is not None


def problem_of(flag: str, part: str, message: str, help: str) -> Problem:  # noqa: A002
    """Return the problem with a part of a flag's text: `--volume: "size=3": …`, or `--volume: "size=3" is no …`."""
    colon = "" if message.startswith(("is ", "would ")) else ":"
    where = f'--{flag}: "{part}"' if part else f"--{flag}"
    return Problem(f"{where}{colon} {message}", help)


def problem_of_value(flag: str, value: str, message: str, help: str) -> Problem:  # noqa: A002
    """Return the problem with the whole of a flag's text: `--image_name="A" is no …`."""
    return Problem(f'--{flag}="{value}" {message}', help)


def unknown(word: str, allowed: Collection[str]) -> str:
    """Return the help about a word that is none of those allowed."""
    everything = f"allowed: {', '.join(sorted(allowed))}"
    near = did_you_mean(nearest(word, allowed))
    return f"{near} ({everything})" if near else everything
