"""What members are told of those that have ended while they computed, and of tasks that have ended them.

A task that is to be ended is told of behind a new generation: in it all members stand before the step that the task is
in, else some would be in it, and others wait before it.
"""

__all__ = ["Deaths"]


class Deaths:
    """What one job's members are told of deaths.

    Attributes
    ----------
    caution : (int, int)
        From which version on members name each slot before they compute it, and from which one on no more.
    closing : tuple of int
        The tasks that are about to be ended: no step has a minibatch of them.
    """

    def __init__(self) -> None:
        self.caution = 0, 0
        self.closing: tuple[int, ...] = ()
        self._told: tuple[int, ...] = ()  # the newest generation of `closing`

    def on_generation(self) -> None:
        """A generation begins."""
        self._told = self.closing

    @property
    def is_generation_due(self) -> bool:
        """Whether a task is to be ended that no generation has begun for."""
        return not set(self.closing).issubset(self._told)
