"""Why a pod waits: Kubernetes' long texts on room and images, as whoever waits for the pod reads them.  Pure.

Master and commands say it in the same words: `0/6 nodes: Insufficient cpu`.
"""

import re

__all__ = [
    "IMAGE_REASONS",
    "LONGEST",
    "image_help",
    "image_reason",
    "on_one_line",
    "plain_reason",
    "says_no_cause",
]

LONGEST = 160  # letters of a note
IMAGE_REASONS = frozenset(
    ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
)

_NO_ROOM = re.compile(r"(?P<nodes>\d+/\d+) nodes are available: (?P<why>.*)", re.DOTALL)
# What follows the reasons, after a full stop: what the scheduler's plugins could not do about them either.
_NO_WAY_OUT = re.compile(r"\.\s+(?:[^.:]*\bpreemption:|no new claims\b|preemption is\b).*", re.DOTALL)
_COUNT = re.compile(r"^\d+ ")
# What kubelets and container runtimes put before the cause; the image's name is said anyhow.
_BEFORE_CAUSE = re.compile(
    r"""(?: Back-off\ pulling\ image\ "[^"]*"
          | ErrImage\w+ | ImagePullBackOff | RegistryUnavailable
          | Failed\ to\ pull\ image\ "[^"]*"
          | rpc\ error:\ code\ =\ \w+\ desc\ =
          | Error\ response\ from\ daemon
          | [Ff]ailed\ to\ [\w ]+?\ "[^"]*"
          | failed\ to\ (?:do\ request|copy)
          | httpReadSeeker:\ failed\ open
          | (?:Get|Head|HEAD|GET)\ "[^"]*"
          | (?:initializing|copying)\ source\ \S+
          | pinging\ container\ registry\ \S+
          | reading\ manifest\ \S+\ in\ \S+
        ) (?: :\s+ | \s+ | $ )""",
    re.VERBOSE,
)
_NO_CAUSE = re.compile(r"Error: \w+|Back-off pulling image \"[^\"]*\"")
_HELP = (  # words of the cause, and what to do
    (("pull policy of Never",), "load it onto each node, or leave --image_pull_policy=Never out"),
    (("no match for platform",), "build it for the nodes: edlz zoo build --platform=linux/amd64 (or arm64)"),
    (
        ("access denied", "authoriz", "unauthorized", "denied", "401", "403"),
        "correct --image_name, or give the nodes a login: imagePullSecrets of the service account",
    ),
    (
        ("HTTP response to HTTPS client",),
        "its registry speaks http: whoever runs the nodes has to allow that there",
    ),
    (("x509", "certificate"), "whoever runs the nodes has to let them trust the registry's certificate"),
    (
        ("no such host", "connection refused", "i/o timeout", "deadline exceeded"),
        "the nodes do not reach that registry: see the name in --image_name",
    ),
    (("not found", "manifest unknown"), "push it, or submit the job with the right --image_name"),
    (("must be lowercase", "invalid reference format"), "submit the job with the right --image_name"),
)
_LEAST_CAUSE = 60  # letters of the cause, however long the image's name is


def plain_reason(text: str) -> str:
    """Return a text of Kubernetes on one line, without what says nothing to whoever waits."""
    line = " ".join(text.split())
    found = _NO_ROOM.search(line)
    if found is None:
        return on_one_line(line)
    reasons = [part.strip() for part in _NO_WAY_OUT.sub("", found["why"]).removesuffix(".").split(",")]
    if len(reasons) == 1:
        reasons = [_COUNT.sub("", reasons[0])]
    return on_one_line(f"{found['nodes']} nodes: {', '.join(reasons)}")


def image_reason(image: str, message: str, *, event: str = "") -> str:
    """Return that an image cannot be pulled, and the cause, which stands at the end of what the runtime says.

    Parameters
    ----------
    message : str
        Of the container that waits.
    event : str
        What an event says of it: kubelets before 1.31 say no cause in the container's message.
    """
    cause = _cause_of(message) or _cause_of(event)
    lead = f"image {image} cannot be pulled"
    return f"{lead}: {_both_ends(cause, max(_LEAST_CAUSE, LONGEST - len(lead) - 2))}" if cause else lead


def image_help(reason: str) -> str:
    """Return what to do about an image that cannot be pulled, by what `image_reason` says; nothing if that says it all."""
    if "cannot be pulled" not in reason:
        return ""
    return next((help_ for words, help_ in _HELP if any(word in reason for word in words)), "")


def says_no_cause(message: str) -> bool:
    """Whether an event only repeats that an image cannot be pulled."""
    return _NO_CAUSE.fullmatch(message.strip()) is not None


def on_one_line(text: str) -> str:
    """Return a text on one line, with an end to it."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1].rstrip() + "…"


def _cause_of(message: str) -> str:
    cause = " ".join(message.split()).removeprefix("Failed: ")
    while found := _BEFORE_CAUSE.match(cause):
        cause = cause[found.end() :]
    return cause.partition(": server message: ")[0]  # which says once more that it is denied


def _both_ends(text: str, longest: int) -> str:
    """Return a text without its middle if it is too long: what it is about stands first, the cause last."""
    if len(text) <= longest:
        return text
    head = longest // 3
    return f"{text[:head].rstrip()} … {text[len(text) - (longest - head - 3) :].lstrip()}"
