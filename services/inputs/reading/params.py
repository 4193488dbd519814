"""The parameters of a reader, as `--data_reader_params` writes them: `reader_type=CSV;sep=,`.

A value is a Python literal, or else the text as it stands: no text is ever evaluated.
"""

import ast
from collections.abc import Iterable
from typing import Any

from edlz.services.configuration.nearest import did_you_mean, nearest
from edlz.services.errors import ConfigError

__all__ = ["Params", "parse_params"]

FLAG = "--data_reader_params"
READER_TYPE = "reader_type"


class Params:
    """Parameters by name, each checked where it is asked for."""

    def __init__(self, values: dict[str, Any], text: str = "") -> None:
        self.values, self.text = values, text

    @property
    def reader_type(self) -> str:
        return self.text_of(READER_TYPE, "")

    def check_names(self, known: Iterable[str], reader: str) -> None:
        """Raise ConfigError for a parameter that this reader does not know."""
        names = [READER_TYPE, *known]
        for name in self.values:
            if name not in names:
                near = did_you_mean(nearest(name, names))
                takes = f"it takes {', '.join(names[1:])}" if names[1:] else "it takes none"
                raise ConfigError(f'{FLAG}: the {reader} reader knows no "{name}"', near or takes)

    def text_of(self, name: str, default: str) -> str:
        value = self.values.get(name, default)
        if not isinstance(value, str):
            raise self._wrong(name, "a text")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.values.get(name, default)
        named = {"yes": True, "true": True, "no": False, "false": False}
        value = named.get(value.lower(), value) if isinstance(value, str) else value
        if not isinstance(value, bool):
            raise self._wrong(name, "yes or no")
        return value

    def texts(self, name: str) -> list[str] | None:
        """Return a list of texts: a literal list, or words with commas between them; None if it is not given."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, str):
            return [part.strip() for part in value.split(",") if part.strip()]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return [str(value)]
        if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
            return list(value)
        raise self._wrong(name, "names with commas between them")

    def columns(self) -> list[str] | None:
        """Return the names of the columns to read, each once; None if it is not said which."""
        found = self.texts("columns")
        if found is None:
            return None
        twice = next((name for name in found if found.count(name) > 1), None)
        if twice is not None:
            raise self.wrong("columns", f'names "{twice}" twice', "name each column once")
        if not found:
            raise self.wrong("columns", "names no column", "without it all columns are read")
        return found

    def mapping(self, name: str) -> dict[str, Any]:
        """Return values by column: a literal dict, or `column:value` with commas between them."""
        value = self.values.get(name, {})
        if isinstance(value, str):
            pairs = [part.rpartition(":") for part in value.split(",") if part.strip()]
            if not all(middle for _, middle, _ in pairs):
                raise self._wrong(name, "column:value, with commas between them")
            return {column.strip(): _value(text) for column, _, text in pairs}
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return value
        raise self._wrong(name, "column:value, with commas between them")

    def wrong(self, name: str, must: str, advice: str = "") -> ConfigError:
        return ConfigError(f"{FLAG}: {name}={self.values.get(name)!r} {must}", advice)

    def _wrong(self, name: str, wanted: str) -> ConfigError:
        return self.wrong(name, f"is not {wanted}")


def parse_params(text: str) -> Params:
    """Return the parameters in `name=value;name=value`.

    Raises
    ------
    ConfigError
        If a part is not so, or a name is there twice.
    """
    values: dict[str, Any] = {}
    for part in _split(text):
        name, equals, value = part.partition("=")
        if not equals or not name.strip().isidentifier():
            raise ConfigError(f'{FLAG}: "{part.strip()}" is not name=value', 'e.g. "reader_type=CSV;sep=,"')
        if name.strip() in values:
            raise ConfigError(f"{FLAG}: {name.strip()}= is there twice", "say it once")
        values[name.strip()] = _value(value)
    return Params(values, text)


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text if text in (" ", "\t") else text.strip()


def _split(text: str) -> list[str]:
    """Split at semicolons: not in quotes, nor where one is a value, as in `sep=;`."""
    parts, quote = [""], ""
    for place, letter in enumerate(text):
        is_value = parts[-1].strip().endswith("=") and text[place + 1 : place + 2] in ("", ";")
        if letter == ";" and not quote and not is_value:
            parts.append("")
            continue
        if letter in "'\"" and quote in ("", letter) and (quote or not is_value):
            quote = "" if quote else letter
        parts[-1] += letter
    return [part for part in parts if part.strip()]
