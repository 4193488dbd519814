"""The help pages of `edlz` itself; those of `edlz train` are drawn from the flags (`services.help_page`)."""

from collections.abc import Sequence

from edlz.services.configuration.help_page import help_page, help_topic
from edlz.services.configuration.nearest import did_you_mean, nearest
from edlz.services.configuration.problems import InvalidConfigError, Problem

__all__ = ["COMMANDS", "DATASETS", "asked_help", "unknown_command"]

COMMANDS = {
    "train": "train a Keras model on this machine",
    "zoo data": "write example data as RecordIO files",
}
DATASETS = ("mnist", "fashion_mnist")
_ZOO_DATA_FLAGS = ("--source",)

_EDLZ = """\
Usage: edlz COMMAND [flags]
Train Keras models on machines that come and go.

  edlz train       {train}
  edlz zoo data    {zoo_data}

  edlz COMMAND --help      the flags of a command
  edlz --version           version of edlz, Python and TensorFlow
  edlz --install-completion  completion of flags for this shell

Environment: EDLZ_HOME  EDLZ_<FLAG>  EDLZ_DEBUG=1  NO_COLOR  FORCE_COLOR
""".format(train=COMMANDS["train"], zoo_data=COMMANDS["zoo data"])

_ZOO = f"""\
Usage: edlz zoo COMMAND
The model zoo: models that run as they are, and their data.

  edlz zoo data    {COMMANDS["zoo data"]}
"""

_ZOO_DATA = f"""\
Usage: edlz zoo data NAME OUTPUT [flags]
Write example data as RecordIO files: OUTPUT/train and OUTPUT/test.

  NAME                     {" | ".join(DATASETS)}                       required
  OUTPUT                   folder that the files are written to        required
  --source DIR             folder of the original files
"""


def asked_help(argv: Sequence[str]) -> str | None:
    """Return the page that a command line asks for, or None if it asks for none.

    Raises
    ------
    InvalidConfigError
        If it asks about something that does not exist.
    """
    topic = help_topic(argv)
    words = [word for word in argv if not word.startswith("-")]
    if not argv:
        return _EDLZ
    if topic is None:
        return {"zoo": _ZOO, "help": _EDLZ}.get(" ".join(argv))
    if not words or words[0] == "help":
        return _EDLZ
    if words[0] == "train":
        return help_page("train", topic)
    if words[0] == "zoo":
        return _ZOO_DATA if words[1:2] == ["data"] else _ZOO
    problem = unknown_command(argv)
    raise InvalidConfigError([problem or Problem(f"no help for {words[0]}")])


def unknown_command(argv: Sequence[str]) -> Problem | None:
    """Return the error that a command line names no command, or a flag that its command has not."""
    words = list(argv[:1]) if argv[0] != "zoo" else list(argv[:2])
    given = " ".join(words)
    if given in COMMANDS:
        flags = [word.partition("=")[0] for word in argv if word.startswith("--")]
        wrong = [word for word in flags if given == "zoo data" and word not in _ZOO_DATA_FLAGS]
        hint = did_you_mean(nearest(wrong[0], _ZOO_DATA_FLAGS)) if wrong else ""
        return Problem(f"no flag {wrong[0]}", hint or "edlz zoo data --help") if wrong else None
    if words[-1].startswith("-"):
        return Problem(f"no flag {words[-1].partition('=')[0]} here", "a command comes first: edlz --help")
    near = [f"edlz {name}" for name in nearest(given, COMMANDS)]
    return Problem(f'no command "{given}"', did_you_mean(near) or "all commands: edlz --help")
