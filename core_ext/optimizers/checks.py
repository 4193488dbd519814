"""Checks of an optimizer's settings; each raises ValueError that names the setting and its value."""

from edlz.core_ext.optimizers.scalars import round_32

__all__ = [
    "is_finite_in_float32",
    "require_bool",
    "require_decay_rate",
    "require_fraction",
    "require_not_negative",
    "require_number",
    "require_positive",
]


# Half a unit in the last place above the largest float32: from here on numbers are rounded to infinity.
_ROUNDED_TO_INFINITY = 2.0**128 - 2.0**103


def is_finite_in_float32(value: float) -> bool:
    """Whether a number is neither a NaN nor infinite, also when it has been rounded to float32."""
    return -_ROUNDED_TO_INFINITY < value < _ROUNDED_TO_INFINITY


def require_number(setting: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{setting}={value!r} is not a number")


def require_bool(setting: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{setting}={value!r} is neither True nor False")


def require_fraction(setting: str, value: float, usual: str) -> None:
    """Require a number within 0 and 1, both allowed."""
    require_number(setting, value)
    if not 0 <= value <= 1:
        raise ValueError(f"{setting}={value} is not within 0 and 1; {usual} is usual")


def require_decay_rate(setting: str, value: float) -> None:
    """Require a number from 0 up to 1, and below 1 also in float32."""
    require_number(setting, value)
    if not (value >= 0 and is_finite_in_float32(value) and round_32(value) < 1):
        raise ValueError(f"{setting}={value} is not within 0 and 1 (1 left out) in float32")


def require_positive(setting: str, value: float, usual: str) -> None:
    """Require a number that is above 0 and finite, also in float32."""
    require_number(setting, value)
    if not (is_finite_in_float32(value) and round_32(value) > 0):
        raise ValueError(f"{setting}={value} is not above 0 in float32; {usual} is usual")


def require_not_negative(setting: str, value: float) -> None:
    """Require a number that is at least 0 and finite in float32."""
    require_number(setting, value)
    if not (value >= 0 and is_finite_in_float32(value)):
        raise ValueError(f"{setting}={value} is not a finite number of 0 or more in float32")
