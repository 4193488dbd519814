"""What functions of the user take: the names of their parameters, and how many values by place."""

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["parameter_names", "positional_count", "positional_names"]

MANY = 100  # what *args takes


def parameter_names(function: Any) -> frozenset[str]:
    """Return the names of all parameters; none of a builtin, or of what is no function."""
    try:
        return frozenset(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return frozenset()


def positional_names(function: Callable[..., Any]) -> list[str]:
    """Return the names of parameters that take a value by place, in their order; none of a builtin."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in kinds]


def positional_count(function: Callable[..., Any]) -> int:
    """Return how many values by place a function can take; MANY, for *args, and two of a builtin."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 2
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return MANY
    return len(positional_names(function))
