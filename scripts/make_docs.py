"""Write into the docs what the code says better: diagrams of state machines, and the list of messages.

Each part stands between two comments, `<!-- made: NAME -->` and `<!-- end of NAME -->`; `python scripts/make_docs.py`
writes all of them anew.  A test fails when the code has moved on without that.
"""

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from edlz.k8s.pods.pod_inventory import STEPS as POD_STEPS
from edlz.services.master.core.checkpoints import STAGES
from edlz.services.master.core.groups.rendezvous import STEPS as GROUP_STEPS
from edlz.services.master.core.vocabulary.phase import STEPS as PHASES
from edlz.services.protocol import messages
from edlz.services.protocol.message_types import Record
from edlz.services.ps.core.checkpointing import STEPS as CUT_STEPS
from edlz.services.ps.core.standing import STEPS as PARTITION_STEPS
from edlz.services.transitions import Transitions
from edlz.services.worker.core.groups.replica_phases import STEPS as REPLICA_STEPS
from edlz.services.worker.core.held_tasks import STEPS as TASK_STEPS

__all__ = ["PAGES", "made"]

DOCS = Path(__file__).parents[1] / "docs"
WIDTH = 116


def diagram(steps: Transitions[Any]) -> str:
    """Draw a state machine as Mermaid does it: GitHub shows it as a picture."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {_word(steps.first)}"]
    lines += [
        f"    {_word(state)} --> {_word(following)}"
        for state, after in steps.after.items()
        for following in sorted(after, key=list(steps.after).index)
    ]
    return "\n".join([*lines, "```"])


def _word(state: Any) -> str:
    return str(state.value).replace(" ", "_")


def list_of_messages() -> str:
    """List every message with its fields, then the records in them, in the order of messages.py."""
    tops = [*messages.REQUESTS, *messages.ANSWERS]
    parts = [kind for kind in vars(messages).values() if _is_record(kind) and kind is not Record]
    lines = [line for kind in sorted(tops, key=_tag) for line in _lines_of(kind)]
    lines += ["", *(line for kind in parts for line in _lines_of(kind))]
    return "\n".join(["```", *lines, "```"])


def _is_record(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Record)


def _tag(kind: Any) -> int:
    return int(kind.__struct_config__.tag)


def _lines_of(kind: Any) -> Iterator[str]:
    """Yield a line on what a message is, if it says so, and its fields below."""
    about = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
    is_told = bool(about) and not about.startswith(f"{kind.__name__}(")
    yield from textwrap.wrap(
        f"{kind.__name__}: {about}" if is_told else kind.__name__, WIDTH, subsequent_indent="  "
    )
    hints = get_type_hints(kind)
    fields = ", ".join(_field(name, hints[name]) for name in kind.__struct_fields__)
    yield from textwrap.wrap(fields, WIDTH, initial_indent="    ", subsequent_indent="    ")


def _field(name: str, kind: Any) -> str:
    """Spell a field: `?` where it may be missing, `[]` for any number of them."""
    if get_origin(kind) is UnionType and NoneType in get_args(kind):
        return f"{name}?"
    is_many = get_origin(kind) is tuple and get_args(kind)[-1] is ...
    return f"{name}[]" if is_many else name


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "architecture.md": {
        "a task in hand": lambda: diagram(TASK_STEPS),
        "a job": lambda: diagram(PHASES),
        "a cut of the job": lambda: diagram(STAGES),
        "a partition": lambda: diagram(PARTITION_STEPS),
        "a cut": lambda: diagram(CUT_STEPS),
        "a group": lambda: diagram(GROUP_STEPS),
        "a replica": lambda: diagram(REPLICA_STEPS),
        "a pod": lambda: diagram(POD_STEPS),
    },
    "protocol.md": {"messages": list_of_messages},
}


def made(page: str, text: str) -> str:
    """Return the text of a page with what is made of the code as the code is now.

    Raises
    ------
    ValueError
        If the page has no place for a part.
    """
    for name, make in PAGES[page].items():
        begin, end = f"<!-- made: {name} -->\n", f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        if not (found and ended):
            raise ValueError(f"{page} has no place for {name!r}: {begin}{end}")
        text = f"{before}{begin}{make()}\n{end}{after}"
    return text


def main() -> int:
    for page in PAGES:
        path = DOCS / page
        path.write_text(made(page, path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
