"""Ctrl-C in a view of a job that runs elsewhere: the view is left, the job goes on."""

import sys

from edlz.client.screen.terminal import print_sentence

__all__ = ["LeftTheView", "left_the_view"]


class LeftTheView(Exception):
    """Somebody has left a view; what there is to say has been said."""


def left_the_view(word: str, back: str) -> LeftTheView:
    """Say that the job goes on; return what ends the command."""
    print(file=sys.stderr)  # behind the terminal's own ^C
    print_sentence(f"Left the view; {word} goes on. Back: {back}   Stop: edlz stop {word}", sys.stderr)
    return LeftTheView()
