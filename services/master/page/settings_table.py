"""The settings of a job as its page shows them: those that are not defaults, where they come from, the command to repeat it.

Values of `--envs`, passwords in addresses and keys are not shown to whoever may look at a page.
"""

import json
import shlex
from typing import Any

from edlz.services.configuration.flags import COMMANDS
from edlz.services.configuration.job_config import NO_LIMIT, JobConfig, flags
from edlz.services.configuration.origins import places_of
from edlz.services.redaction import HIDDEN, without_secrets

__all__ = ["command_to_repeat", "settings_rows", "shown_setting"]

_NOT_TO_REPEAT = frozenset(("config", "fresh", "progress"))
# Given by flags on building an image, of which a master hears nothing: without an image the job would run here.
_GIVEN_BY_OTHERS = frozenset(("image_name",))


def settings_rows(config: JobConfig) -> list[dict[str, str]]:
    """Return name, value and origin of each setting that is not its default."""
    command = COMMANDS[config.purpose]
    places, rows = places_of(config), []
    for about in flags():
        value, default = getattr(config, about.name), about.default_for(command)
        if command not in about.readers or value in (default, ""):
            continue
        origin = places[about.name] or "command line" if about.name in places else "worked out"
        over = "" if default in ("", None) else f", over default {shown_setting(about.name, default)}"
        rows.append({"name": about.name, "value": shown_setting(about.name, value), "origin": origin + over})
    return rows


def command_to_repeat(config: JobConfig) -> str:
    """Return the command that runs the job again: what was given, without what is not shown."""
    command, given = COMMANDS[config.purpose], places_of(config).keys() | _GIVEN_BY_OTHERS
    words = ["edlz", command]
    for about in flags():
        value = getattr(config, about.name)
        is_left_out = about.name in _NOT_TO_REPEAT or command not in about.readers or about.name not in given
        if is_left_out or value in (about.default_for(command), "", None, NO_LIMIT):
            continue
        words.append(f"--{about.name}={shown_setting(about.name, value)}")
    text = shlex.join(words)
    return f"{text}   # {HIDDEN}: not shown here" if HIDDEN in text else text


def shown_setting(name: str, value: object) -> str:
    """Return the value of a flag as anybody may see it."""
    text = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
    if value == NO_LIMIT:
        return "no limit"
    if name == "envs":
        return ",".join(_without_value(part) for part in text.split(","))
    if name == "cluster_spec_json":
        return _shown_json(text)
    return without_secrets(text)


def _without_value(part: str) -> str:
    key, equals, _ = part.partition("=")
    return f"{key}={HIDDEN}" if equals else HIDDEN  # a value may hold a comma


def _shown_json(text: str) -> str:
    """Return JSON with no text but names and kinds: any other may be a variable's value."""
    try:
        return json.dumps(_shown_tree(json.loads(text)))
    except (ValueError, RecursionError):
        return HIDDEN


def _shown_tree(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {
            key: value if key in ("name", "kind") and isinstance(value, str) else _shown_tree(value)
            for key, value in tree.items()
        }
    if isinstance(tree, list):
        return [_shown_tree(item) for item in tree]
    return HIDDEN if isinstance(tree, str) else tree
