"""What a pod asks for: `cpu=1,memory=4096Mi,ephemeral-storage=5000Mi,gpu=1`.

cpu                             cores, as 0.5 or 500m
memory                          a whole or decimal number with k M G T P E or Ki Mi Gi Ti Pi Ei
ephemeral-storage, disk         the same; `disk` is another word for it
gpu                             whole devices of nvidia.com/gpu
VENDOR.DOMAIN/gpu               whole devices of another vendor
nvidia.com/ANYTHING             parts of devices, such as nvidia.com/mig-1g.5gb

Whether a text may stand in a flag is one question; what a quantity of Kubernetes' amounts to is another, and `number_of`,
`bytes_of` and `cores_of` ask no more of it than that it is one.
"""

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

from edlz.k8s.flags.syntax import is_subdomain, problem_of, unknown
from edlz.services.configuration.job_config import JobConfig
from edlz.services.configuration.problems import InvalidConfigError, Problem

__all__ = [
    "bytes_of",
    "cores_of",
    "limits_of",
    "memory_quantity",
    "number_of",
    "parse_resources",
    "requests_of",
    "resource_problems",
]

_ALIASES = {"disk": "ephemeral-storage", "gpu": "nvidia.com/gpu"}
_NAMES = ("cpu", "memory", "ephemeral-storage", "disk", "gpu")
_CPU = re.compile(r"(\d+\.?\d*|\.\d+)|([1-9]\d*)m")
_SIZE = re.compile(r"(\d+\.?\d*|\.\d+)(k|K|[MGTPE]|[KMGTPE]i)")
_BARE = re.compile(r"\d+(\.\d+)?")
_DEVICES = re.compile(r"\d{1,6}")
_DEVICE_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_EXAMPLE = "cpu=1,memory=4096Mi"
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:(m|k|[MGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,3}))?")
_LETTERS = "KMGTPE"
_FACTORS: dict[str, Fraction] = {"": Fraction(1), "m": Fraction(1, 1000), "k": Fraction(1000)}
_FACTORS |= {letter: Fraction(1000) ** power for power, letter in enumerate(_LETTERS, 1) if letter != "K"}
_FACTORS |= {f"{letter}i": Fraction(1024) ** power for power, letter in enumerate(_LETTERS, 1)}
_MEBIBYTE = 1 << 20


def parse_resources(text: str, flag: str) -> dict[str, str]:
    """Return names and quantities as Kubernetes takes them; nothing for an empty text.

    Parameters
    ----------
    text : str
        As above.
    flag : str
        The flag's name, for messages.

    Raises
    ------
    InvalidConfigError
        With a problem for each part that is wrong.
    """
    found: dict[str, str] = {}
    problems: list[Problem] = []
    for part in text.split(",") if text.strip() else ():
        name, equals, value = (piece.strip() for piece in part.partition("="))
        full = _ALIASES.get(name, name)
        problem = _problem(flag, part.strip(), name, value) if equals else _no_value(flag, part.strip())
        if problem is None and full in found:
            problem = problem_of(flag, part.strip(), f"{full} stands there twice", "drop one of the two")
        if problem is None:
            found[full] = _written(full, value)
        else:
            problems.append(problem)
    if problems:
        raise InvalidConfigError(problems)
    return found


def requests_of(config: JobConfig, role: str) -> dict[str, str]:
    """Return what a pod of this role (master, ps, worker) asks for."""
    return parse_resources(*_flag(config, role, "request"))


def limits_of(config: JobConfig, role: str) -> dict[str, str]:
    """Return the limits of a pod of this role: those given, or else what it asks for.

    Devices cannot be asked for without a limit, so one that is missing is the request.
    """
    requests, given = requests_of(config, role), parse_resources(*_flag(config, role, "limit"))
    if not given:
        return requests
    return given | {name: value for name, value in requests.items() if "/" in name and name not in given}


def resource_problems(config: JobConfig) -> Iterator[Problem]:
    """Find what is wrong with the requests and limits of all roles, and where they do not fit together."""
    for role in ("master", "ps", "worker"):
        parsed: list[Mapping[str, str]] = []
        for kind in ("request", "limit"):
            try:
                parsed.append(parse_resources(*_flag(config, role, kind)))
            except InvalidConfigError as e:
                yield from e.problems
        if len(parsed) == 2 and parsed[1]:
            yield from _excess(role, *parsed)
    yield from _cap_problem(config)


def number_of(text: str) -> Fraction:
    """Return the exact number that a quantity stands for.

    Raises
    ------
    ValueError
        If Kubernetes would not take it as a quantity.

    References
    ----------
    The grammar of `resource.Quantity` in the Kubernetes API reference.
    """
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise ValueError(f'"{text}" is no quantity')
    digits, suffix, exponent = found.groups()
    return Fraction(digits) * _FACTORS[suffix or ""] * Fraction(10) ** int(exponent or 0)


def bytes_of(text: str) -> int:
    """Return the bytes of a quantity of memory or storage, rounded up: `bytes_of("1024Mi")` is 2**30."""
    return -int(-number_of(text) // 1)


def cores_of(text: str) -> float:
    """Return the cores of a quantity of cpu: `cores_of("100m")` is 0.1."""
    return float(number_of(text))


def memory_quantity(size_bytes: int) -> str:
    """Return the quantity for a number of bytes, rounded up to whole mebibytes: `1536Mi`."""
    return f"{-(-size_bytes // _MEBIBYTE)}Mi"


def _flag(config: JobConfig, role: str, kind: str) -> tuple[str, str]:
    name = f"{role}_resource_{kind}"
    return str(getattr(config, name)), name


def _problem(flag: str, part: str, name: str, value: str) -> Problem | None:
    if name == "cpu":
        return _cpu_problem(flag, part, value)
    if name in ("memory", "ephemeral-storage", "disk"):
        return _size_problem(flag, part, name, value)
    if name == "gpu" or _is_device(name):
        if _DEVICES.fullmatch(value):
            return None
        return problem_of(flag, part, f'"{value}" is no number of devices', f"e.g. {name}=1")
    if "/" in name:
        message = f'"{name}" is no device: VENDOR.DOMAIN/gpu or nvidia.com/NAME'
        return problem_of(flag, part, message, "e.g. amd.com/gpu=1")
    allowed = unknown(name, (*_NAMES, "VENDOR.DOMAIN/gpu"))
    return problem_of(flag, part, f'"{name}" is no resource', allowed)


def _is_device(name: str) -> bool:
    domain, slash, device = name.partition("/")
    if not slash or "." not in domain or not is_subdomain(domain):
        return False
    return device == "gpu" or (domain == "nvidia.com" and _DEVICE_NAME.fullmatch(device) is not None)


def _cpu_problem(flag: str, part: str, value: str) -> Problem | None:
    if not _CPU.fullmatch(value):
        return problem_of(flag, part, f'"{value}" is no number of cores', "e.g. cpu=0.5 or cpu=500m")
    milli = number_of(value) * 1000
    if milli == 0:
        return problem_of(flag, part, "no pod runs without cpu", "e.g. cpu=0.5 or cpu=500m")
    if milli.denominator != 1:
        return problem_of(flag, part, "finer than a thousandth of a core", f"e.g. cpu={-(-milli // 1)}m")
    return None


def _size_problem(flag: str, part: str, name: str, value: str) -> Problem | None:
    if _SIZE.fullmatch(value):
        if number_of(_written(name, value)) >= 1:
            return None
        return problem_of(flag, part, "less than a byte", f"e.g. {name}=4096Mi")
    if _BARE.fullmatch(value):
        return problem_of(flag, part, f'"{value}" has no unit', f"e.g. {name}={value}Mi")
    units = "k M G T P E or Ki Mi Gi Ti Pi Ei"
    return problem_of(flag, part, f'"{value}" is no size: a number with {units}', f"e.g. {name}=4096Mi")


def _no_value(flag: str, part: str) -> Problem:
    message = "is not name=value" if part else "a part is empty"
    return problem_of(flag, part, message, f"e.g. --{flag}={_EXAMPLE}")


def _written(name: str, value: str) -> str:
    """Return a value as Kubernetes writes it: its thousand has a small letter."""
    return value if name == "cpu" or not value.endswith("K") else f"{value[:-1]}k"


def _excess(role: str, requests: Mapping[str, str], limits: Mapping[str, str]) -> Iterator[Problem]:
    """Find what Kubernetes would refuse: a request above its limit, devices that differ."""
    for name, value in requests.items():
        limit = limits.get(name, value)
        if number_of(value) > number_of(limit) or ("/" in name and number_of(value) != number_of(limit)):
            word = "is not" if "/" in name else "exceeds"
            message = f"{name}={value} {word} the limit of {limit}"
            help_ = f"--{role}_resource_limit with {name}={value}, or a request of {limit}"
            yield problem_of(f"{role}_resource_request", "", message, help_)


def _cap_problem(config: JobConfig) -> Iterator[Problem]:
    if config.max_worker_memory:
        problem = _size_problem(
            "max_worker_memory", config.max_worker_memory, "memory", config.max_worker_memory
        )
        if problem is not None:
            yield Problem(problem.message, problem.help.replace("memory=", "--max_worker_memory="))
            return
        try:
            limit = limits_of(config, "worker").get("memory", "0")
        except InvalidConfigError:
            return
        if bytes_of(_written("memory", config.max_worker_memory)) < bytes_of(limit):
            message = f"{config.max_worker_memory} is less than a worker's memory of {limit}"
            yield problem_of("max_worker_memory", "", message, f"--max_worker_memory={limit} or more")
