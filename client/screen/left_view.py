"""Ctrl-C in a view of a job that runs elsewhere: the view is left, the job goes on."""

import sys

__all__ = ["LeftTheView", "left_the_view"]


class LeftTheView(Exception):
    """Somebody has left a view; what there is to say has been said."""


def left_the_view(word: str, back: str) -> LeftTheView:
    """Say that the job goes on; return what ends the command."""
    text = f"\nLeft the view; {word} goes on. Back: {back}   Stop: edlz stop {word}"
    print(text, file=sys.stderr)
    return LeftTheView()
