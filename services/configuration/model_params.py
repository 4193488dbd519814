"""The arguments of a model's function, as `--model_params` writes them: `units=64;rate=0.5`.

Values are Python literals and nothing else: no text is ever evaluated.
"""

import ast
from typing import Any

from edlz.services.errors import ConfigError

__all__ = ["parse_model_params"]


def parse_model_params(text: str) -> dict[str, Any]:
    """Return the arguments in `name=literal;name=literal`; nothing is evaluated.

    Raises
    ------
    ConfigError
        If a name is no identifier, or a value no Python literal.
    """
    arguments: dict[str, Any] = {}
    for part in _split_outside_quotes(text):
        name, equals, value = part.partition("=")
        if not equals or not name.strip().isidentifier():
            raise ConfigError(
                f'--model_params: "{part.strip()}" is not name=value', 'e.g. "units=64;rate=0.5"'
            )
        try:
            arguments[name.strip()] = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError) as e:
            raise ConfigError(
                f"--model_params: {part.strip()} has no literal for a value",
                f"put a text in quotes: \"{name.strip()}='{value.strip()}'\"",
            ) from e
    return arguments


def _split_outside_quotes(text: str) -> list[str]:
    parts, quote = [""], ""
    for letter in text:
        if letter == ";" and not quote:
            parts.append("")
            continue
        if letter in "'\"" and quote in ("", letter):
            quote = "" if quote else letter
        parts[-1] += letter
    return [part for part in parts if part.strip()]
