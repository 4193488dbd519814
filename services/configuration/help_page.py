"""Help pages, drawn from the flags as plain text of 80 columns.

Typer's own panels cut older spellings off and take three lines a flag; these take one.
"""

from collections.abc import Iterable, Sequence

from edlz.services.configuration.flags import (
    DATA_FLAGS,
    FIRST_WORDS,
    GROUPS,
    LATER_FLAGS,
    PURPOSES,
    READERS,
    Flag,
    Reader,
)
from edlz.services.configuration.job_config import flags, flags_by_spelling
from edlz.services.configuration.nearest import did_you_mean, nearest
from edlz.services.configuration.problems import InvalidConfigError, Problem
from edlz.services.configuration.settings import Setting, refusal_of_later

__all__ = ["COLUMNS", "help_page", "help_topic"]

COLUMNS = 80
_EVERYTHING = "all"
_FLAG_COLUMN, _TEXT_COLUMN, _DEFAULT_COLUMN = 2, 27, 71
_INLINE_GROUPS = ("workers", "results", "kubernetes", "run")
_INLINE_COLUMN = 15
_TITLES: dict[Reader, str] = {
    "evaluate": "Evaluation",
    "predict": "Prediction",
    "analyze": "Analysis",
}  # of what training's flags do

_PURPOSES: dict[Reader, str] = {
    "train": "Train a Keras model on this machine; with --image_name, on Kubernetes.",
    "evaluate": "Evaluate a checkpoint on this machine; with --image_name, on Kubernetes.",
    "predict": "Predict with a checkpoint on this machine; with --image_name, on Kubernetes.",
    "analyze": "Compute statistics of data on this machine; with --image_name, on Kubernetes.",
    "master": "The master of a job that is started by hand: it hands out the work.",
    "worker": "A worker of a job that is started by hand: it runs the model.",
    "ps": "A parameter server of a job that is started by hand.",
}


def help_topic(argv: Sequence[str]) -> str | None:
    """Return what help was asked about: "" for the short page, "all", a word; None for no help at all."""
    for token in argv:
        if token in ("-h", "--help"):
            return ""
        if token in ("--help-all", "--help_all"):
            return _EVERYTHING
        if token.startswith("--help="):
            return token.partition("=")[2].removeprefix("--").replace("-", "_").lower()
    return None


def help_page(reader: Reader, topic: str) -> str:
    """Return a page of help.

    Parameters
    ----------
    reader : Reader
        The command that is asked about.
    topic : str
        "", "all", a group, a flag, or a word to look for.

    Raises
    ------
    InvalidConfigError
        If the topic is nowhere in the flags.
    """
    shown = [about for about in flags() if reader in about.readers and not about.hidden]
    if topic in ("", _EVERYTHING):
        lines = _usage(reader, shown)
        lines += _grouped(reader, shown) if topic or reader not in PURPOSES else _short(reader, shown)
        return _page(lines)
    if topic in GROUPS and any(about.group == topic for about in shown):
        return _page(_grouped(reader, [about for about in shown if about.group == topic]))
    about = flags_by_spelling().get(topic)
    if about in shown and about is not None:
        return _page(_one_flag(reader, about))
    matching = [
        about for about in shown if topic in " ".join((*about.spellings, about.help_for(reader), about.group))
    ]
    if matching:
        return _page(_grouped(reader, matching))
    raise InvalidConfigError([_unknown_topic(reader, topic, shown)])


def _usage(reader: Reader, shown: Sequence[Flag]) -> list[str]:
    required = [
        about.metavar if about.name == FIRST_WORDS.get(reader) else f"--{about.name}={about.metavar}"
        for about in shown
        if _is_required(reader, about)
    ]
    usage = " ".join(["Usage:", READERS[reader], *required, "[flags]"])
    short = f"Usage: {READERS[reader]} [flags]"
    return [usage if len(usage) < COLUMNS else short, _PURPOSES[reader], ""]


def _short(reader: Reader, shown: Sequence[Flag]) -> list[str]:
    common = [about for about in shown if about.common or _is_required(reader, about)]
    lines = _grouped(reader, [about for about in common if about.group not in _INLINE_GROUPS])
    for group in _INLINE_GROUPS:
        parts = [_inline(reader, about) for about in common if about.group == group]
        lines += _filled(GROUPS[group], parts) if parts else []
    counts = [f"{group}({sum(about.group == group for about in shown)})" for group in GROUPS]
    lines += _filled("More: --help=GROUP", [part for part in counts if not part.endswith("(0)")], 20)
    lines.append("      --help=WORD   flags about a word, e.g. --help=evaluation")
    lines.append("      --help-all    all of them")
    return lines


def _grouped(reader: Reader, shown: Sequence[Flag]) -> list[str]:
    lines = []
    titles = {**GROUPS, "training": _TITLES.get(reader, GROUPS["training"])}
    for group, title in titles.items():
        members = [about for about in shown if about.group == group]
        if members:
            lines += [title, *(_line(reader, about) for about in members)]
    return lines


def _line(reader: Reader, about: Flag) -> str:
    head = " " * _FLAG_COLUMN + f"--{about.name} {about.metavar}".rstrip()
    head = f"{head:<{_TEXT_COLUMN - 2}}  {about.help_for(reader)}"
    tail = "required" if _is_required(reader, about) else _default(reader, about)
    if not tail:
        return head
    column = min(_DEFAULT_COLUMN, COLUMNS - 1 - len(tail))
    if len(head) >= column:
        return f"{head}\n{'':<{column - 1}} {tail}"
    return f"{head:<{column - 1}} {tail}"


def _inline(reader: Reader, about: Flag) -> str:
    return f"--{about.name} {_default(reader, about).replace('[0]', '')}".rstrip()


def _filled(title: str, parts: Iterable[str], column: int = _INLINE_COLUMN) -> list[str]:
    """Return the parts behind a title, as many in a line as fit."""
    lines = [title.ljust(column - 1)]
    for part in parts:
        if len(lines[-1]) + 2 + len(part) >= COLUMNS:
            lines.append(" " * (column - 1))
        separator = " " if len(lines[-1]) < column else "  "
        lines[-1] += separator + part
    return lines


def _one_flag(reader: Reader, about: Flag) -> list[str]:
    facts = [("default", "required" if _is_required(reader, about) else _default(reader, about)[1:-1])]
    facts.append(("one of", " ".join(name for name in about.choices if name not in about.later)))
    facts.append(("also", "  ".join(f"--{alias}" for alias in about.aliases)))
    facts.append(("dashes", f"--{about.name.replace('_', '-')}" if "_" in about.name else ""))
    facts.append(("environment", f"EDLZ_{about.name.upper()}"))
    facts.append(("config file", f"{about.name}: …" if about.name != "config" else ""))
    read_by = [name for reader, name in READERS.items() if reader in about.readers]
    facts += [("read by" if i == 0 else "", name) for i, name in enumerate(read_by)]
    lines = [f"--{about.name} {about.metavar}".rstrip(), f"  {about.help_for(reader)}"]
    return lines + [f"  {title:<12} {text}" for title, text in facts if text]


def _default(reader: Reader, about: Flag) -> str:
    value = about.default_for(reader)
    text = about.default_texts.get(reader, "" if reader in about.defaults else about.default_text)
    if about.name == "port":
        text = "2222 + ps_id" if reader == "ps" else str(value)
    if not text and isinstance(value, bool):
        text = "yes" if value else "no"
    if not text and not isinstance(value, bool) and value not in (None, ""):
        text = f"{value:g}" if isinstance(value, float) else str(value)
    return f"[{text}]" if text and text != about.name else ""


def _is_required(reader: Reader, about: Flag) -> bool:
    purpose = PURPOSES.get(reader, "training" if reader == "master" else None)
    if purpose is None:
        return reader in about.required_by
    is_begun_from = about.name == "checkpoint_dir_for_init" and purpose != "training"
    return about.name in ("model_def", DATA_FLAGS[purpose]) or is_begun_from


def _unknown_topic(reader: Reader, topic: str, shown: Sequence[Flag]) -> Problem:
    if topic in LATER_FLAGS:
        return refusal_of_later(Setting(topic, None))
    groups = [name for name in GROUPS if any(about.group == name for about in shown)]
    near = nearest(topic, [*(about.name for about in shown), *groups])
    return Problem(
        f'no group, flag or word "{topic}" in the flags of {READERS[reader]}',
        did_you_mean([f"--help={name}" for name in near]) or f"{READERS[reader]} --help-all",
    )


def _page(lines: Sequence[str]) -> str:
    return "\n".join(line.rstrip() for line in lines) + "\n"
