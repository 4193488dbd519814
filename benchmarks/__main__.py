"""Command line: run the chosen benchmarks, print their table, exit with 1 if a target is missed."""

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.other_load import OtherLoad
from benchmarks.rows import Row, Skipped, format_rows

__all__ = ["main"]

_NAMES = (
    "dense",
    "table",
    "sparse_step",
    "rpc",
    "ps",
    "recordio",
    "readers",
    "submission",
    "memory",
    "checkpoint",
    "export",
    "predict",
    "training",
    "allreduce",
    "group_training",
    "barrier",
    "ctr",
    "recovery",
    "recovery_group",
    "scale",
    "page",
    "elastic",
)

_QUIET_SHARE = 0.05


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks.

    Parameters
    ----------
    arguments : sequence of str, optional
        Names of benchmarks (all of them if none is given), `--json FILE`; by default from the command line.

    Returns
    -------
    int
        0 if all targets are met, otherwise 1.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in _NAMES:  # argparse's own choices refuse an empty list
            parser.error(f'there is no benchmark "{name}"; choose from {", ".join(_NAMES)}')
    rows: list[Row | Skipped] = []
    for name in options.names or _NAMES:
        print(f"running {name} ...", file=sys.stderr, flush=True)
        others = OtherLoad()
        # Imported only now: one benchmark's imports (TensorFlow) must not weigh on another's.
        rows += importlib.import_module(f"benchmarks.{name}").measure()
        _warn_of_others(name, others.share)
    print(format_rows(rows))
    if options.json is not None:
        records = [{**asdict(row), "is_met": row.is_met} for row in rows]
        options.json.write_text(json.dumps(records, indent=2) + "\n", encoding="utf-8")
    return 0 if all(row.is_met for row in rows) else 1


def _warn_of_others(name: str, share: float) -> None:
    if share > _QUIET_SHARE:
        print(
            f"{name}: other programs took {share:.0%} of the processors meanwhile; rates by the clock are too low",
            file=sys.stderr,
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(_NAMES)}; default: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows to FILE")
    return parser


if __name__ == "__main__":
    sys.exit(main())
