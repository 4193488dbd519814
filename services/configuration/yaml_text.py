"""YAML that people write or correct: whatever is wrong with a text is one kind of error.

PyYAML takes 40 ms to import, and most commands read no YAML.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["NotYaml", "compose", "load"]


class NotYaml(Exception):
    """A text is no YAML.

    Attributes
    ----------
    line : int or None
        Where, from 1, if that is known.
    """

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem)
        self.line = line


def compose(text: str) -> Any:
    """Return the root node of what a text holds, with the place of each value; None if it holds nothing.

    Raises
    ------
    NotYaml
    """
    import yaml

    with _one_kind_of_error():
        return yaml.compose(text, Loader=yaml.SafeLoader)


def load(text: str) -> Any:
    """Return what a text holds; errors as for `compose`."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # eight times as fast, where it was built
    with _one_kind_of_error():
        return yaml.load(text, loader)


@contextmanager
def _one_kind_of_error() -> Iterator[None]:
    import yaml

    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise NotYaml(str(error.problem), mark.line + 1 if mark else None) from error
    except RecursionError as error:
        raise NotYaml("nested too deeply") from error
    except (yaml.YAMLError, ValueError, LookupError, AttributeError) as error:
        # Month 99, `!!bool maybe`: PyYAML does not look before it converts.
        raise NotYaml(str(error)) from error
