"""The settings that a job keeps as YAML, read without a check: enough to say something about it."""

from collections.abc import Mapping
from typing import Any

from edlz.services.configuration.yaml_text import NotYaml, load

__all__ = ["settings_in"]


def settings_in(text: str) -> Mapping[str, Any]:
    """Return the settings of a text; nothing if it holds none."""
    try:
        found = load(text)
    except NotYaml:
        return {}
    return found if isinstance(found, dict) else {}
