"""Quantities as Kubernetes writes them, as numbers: `1024Mi`, `100m`.

Whether a text may stand in a flag is `resources`' affair; here it only has to be a quantity.
"""

import re
from fractions import Fraction

__all__ = ["bytes_of", "cores_of", "memory_quantity", "number_of"]

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:(m|k|[MGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,3}))?")
_LETTERS = "KMGTPE"
_FACTORS: dict[str, Fraction] = {"": Fraction(1), "m": Fraction(1, 1000), "k": Fraction(1000)}
_FACTORS |= {letter: Fraction(1000) ** power for power, letter in enumerate(_LETTERS, 1) if letter != "K"}
_FACTORS |= {f"{letter}i": Fraction(1024) ** power for power, letter in enumerate(_LETTERS, 1)}
_MEBIBYTE = 1 << 20


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
