"""The config file: YAML with one flag a line.  Owns where in the file each value stands."""

from pathlib import Path
from typing import Any

from edlz.services.configuration.flags import LATER_FLAGS
from edlz.services.configuration.job_config import flags, flags_by_spelling
from edlz.services.configuration.nearest import did_you_mean, nearest
from edlz.services.configuration.problems import Problem
from edlz.services.configuration.settings import Setting, refusal_of_later
from edlz.services.configuration.yaml_text import NotYaml, compose

__all__ = ["settings_from_file"]


_EXAMPLE = "one flag a line, e.g. num_epochs: 2"


def settings_from_file(path: str) -> tuple[dict[str, Setting] | None, list[Problem]]:
    """Read a config file.

    Returns
    -------
    settings : dict, flag name to setting; a key without a value is left out.  None if the file cannot be read
    problems : list of everything that is wrong with the file
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        help_line = _near_file(path) or f"name a YAML file with {_EXAMPLE}"
        return None, [Problem(f'--config="{path}" does not exist', help_line)]
    except (OSError, UnicodeDecodeError) as e:
        if isinstance(e, IsADirectoryError):
            help_line = f"name a file in it: --config={path}/job.yaml"
            return None, [Problem(f'--config="{path}" is a folder', help_line)]
        reason = getattr(e, "strerror", None) or "it is not UTF-8 text"
        return None, [Problem(f'--config="{path}" cannot be read: {reason}', f"text with {_EXAMPLE}")]
    try:
        root = compose(text)
    except NotYaml as e:
        line = f":{e.line}" if e.line else ""
        return None, [Problem(f"{path}{line}: not YAML: {e}", _EXAMPLE)]
    if root is None:
        return {}, []
    if root.id != "mapping":
        return None, [Problem(f"{path} holds no flags", _EXAMPLE)]
    return _settings(path, root)


def _settings(path: str, root: Any) -> tuple[dict[str, Setting], list[Problem]]:
    found: dict[str, Setting] = {}
    problems = []
    for key, value in root.value:
        place = f"{path}:{key.start_mark.line + 1}"
        if key.id != "scalar":
            problems.append(Problem(f"{place}: a key is not a string", _EXAMPLE))
            continue
        setting = Setting(str(key.value).replace("-", "_"), getattr(value, "value", None), place)
        about = flags_by_spelling().get(setting.spelling)
        if setting.spelling in LATER_FLAGS:
            problems.append(refusal_of_later(setting))
        elif about is None and value.id == "mapping":
            message = f'{place}: unknown key "{key.value}", with keys of its own under it'
            problems.append(Problem(message, "one flag a line, without groups, e.g. num_epochs: 2"))
        elif about is None:
            near = did_you_mean(
                nearest(setting.spelling, (name for about in flags() for name in about.spellings[:1]))
            )
            everything = "its keys are the flags: edlz train --help-all"
            problems.append(Problem(f'{place}: unknown key "{key.value}"', near or everything))
        elif about.name == "config":
            problems.append(
                Problem(f"{place}: a config file cannot name another", "put the settings in one file")
            )
        elif value.id != "scalar":
            problems.append(
                Problem(
                    f"{place}: {setting.spelling} has several values, not one",
                    f"one value, e.g. {setting.spelling}: {about.example or about.default}",
                )
            )
        elif about.name in found:
            problems.append(
                Problem(f"{place}: {about.name} stands twice", f"also at {found[about.name].place}")
            )
        elif not value.tag.endswith(":null"):
            found[about.name] = setting
    return found, problems


def _near_file(path: str) -> str:
    parent = Path(path).parent
    try:
        names = [entry.name for entry in parent.iterdir()]
    except OSError:  # the folder is missing too, or may not be read
        return ""
    wanted = Path(path)
    alike = nearest(wanted.stem, {Path(name).stem for name in names})  # an ending is like any other one
    near = [str(parent / name) for stem in alike for name in sorted(names) if Path(name).stem == stem]
    return f"nearest: {near[0]}" if near else ""
