"""How many cases the fuzz tests try, where they begin, and how files are damaged.

The usual suite tries a few cases of each kind; `tox -e fuzz` tries as many as a test calls `full`.
FUZZ_CASES=N sets another number, FUZZ_SEED=N where to begin.  A failure names its seed:
FUZZ_SEED=4711 FUZZ_CASES=1 pytest -m fuzz -k NAME repeats it alone.
"""

import copy
import json
import os
import random
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from edlz.services.errors import EdlzError, LocalProtocolError

__all__ = ["cases", "damaged", "every_case", "refusals"]

CASE_S = 20  # of processor time for one case: a hang
MOST_MEMORY = 256 << 20  # bytes that all cases of a test together may take
ODD_BYTES = (b"", b"\0" * 8, b"\xff" * 8, b"[" * 5000, b"1e999", b"\n", b"-9223372036854775809", b"\xc3(")
ODD_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        -1,
        0,
        1,
        2**31,
        2**63,
        2**64,
        -(2**63) - 1,
        10**30,
        0.5,
        1e300,
        float("nan"),
        float("inf"),
    ),
    *("", "x", "NaN", "-1", "../../..", "\0", "\ud800", "x" * 10_000, [], [[]], [None] * 1000, {}, {"": {}}),
)


def cases(*, few: int, full: int) -> range:
    """Return the seeds of a test."""
    first, wanted = int(os.environ.get("FUZZ_SEED", "0")), os.environ.get("FUZZ_CASES", "")
    return range(first, first + (full if wanted == "full" else int(wanted) if wanted else few))


def every_case(seeds: range, play: Callable[[random.Random], object]) -> None:
    """Play every case within its time, and all within their memory."""
    before = _most_memory()
    for seed in seeds:
        try:
            with _alarm(CASE_S):
                play(random.Random(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}: FUZZ_SEED={seed} FUZZ_CASES=1 repeats it")
            raise
    assert _most_memory() - before < MOST_MEMORY


@contextmanager
def refusals() -> Iterator[None]:
    """Take what a core raises of what it is given: errors that are declared, but none that says that we are wrong."""
    try:
        yield
    except LocalProtocolError:
        raise
    except EdlzError:
        pass


def damaged(chance: random.Random, data: bytes) -> bytes:
    """Return bytes that differ from `data`: in places of its JSON, if it is JSON, or anywhere."""
    if chance.random() < 0.5:
        with suppress(ValueError):  # no JSON
            changed = _damaged_json(chance, json.loads(data), json.loads(data))
            if changed != data:
                return changed
    while (changed := _damaged_bytes(chance, data)) == data:
        pass
    return changed


def _damaged_json(chance: random.Random, root: Any, whole: Any) -> bytes:
    for _ in range(chance.choice((1, 1, 2, 5))):
        places = list(_places(root))
        if not places:
            break
        holder, key = chance.choice(places)
        value = copy.deepcopy(chance.choice((*ODD_VALUES, holder[key], whole)))
        if chance.random() < 0.2:
            del holder[key]
        elif isinstance(holder, list) and chance.random() < 0.3:
            holder.insert(key, value)
        else:
            holder[key] = value
    return json.dumps(root).encode("utf-8", "surrogatepass")


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        yield tree, key
        yield from _places(tree[key])


def _damaged_bytes(chance: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        first = chance.randrange(len(changed) + 1)
        length = min(len(changed) - first, chance.choice((1, 1, 2, 4, 8, 64, 4096)))
        kind = chance.randrange(7)
        if kind <= 1:  # bits
            for place in range(first, first + length):
                changed[place] ^= 1 << chance.randrange(8)
        elif kind == 2:
            changed[first : first + length] = chance.randbytes(length)
        elif kind == 3:  # a piece is lost, or the end
            del changed[first : first + length if chance.random() < 0.5 else None]
        elif kind == 4:  # a piece stands twice, or elsewhere
            place = chance.randrange(len(changed) + 1)
            changed[place:place] = changed[first : first + length]
        elif kind == 5:
            changed[first : first + length] = bytes(length)
        else:
            changed[first:first] = chance.choice((*ODD_BYTES, chance.randbytes(32)))
    return bytes(changed)


@contextmanager
def _alarm(seconds: int) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TimeoutError(f"not within {seconds} s of processor time")

    # Not by the clock: on a machine with much else to do any case takes long.
    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _most_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
