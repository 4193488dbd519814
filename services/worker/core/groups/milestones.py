"""The versions at which a member's state is written, evaluated, or compared with those of others.

All members of a group write the same states, each its own part.  Every so many steps that is a checkpoint; what is written
in between, for recovery or since a checkpoint is wanted out of turn, rank 0 names in its parts of the step before.
"""

from edlz.services.protocol.groups import BASE
from edlz.services.protocol.messages import NO_IDENTITY, GroupOrders, SnapshotName
from edlz.services.worker.core.groups.agreement import CHECK_STEPS
from edlz.services.worker.core.groups.step import Step

__all__ = ["Milestones"]


class Milestones:
    """What one member knows of them.

    Parameters
    ----------
    snapshot_s : float or None
        Seconds between recovery snapshots; None if nobody else sees the folder that they lie in, so that nothing is kept to
        go on from, not even what the job ends with.
    checkpoint_steps : int
        Model versions between checkpoints; 0 for none.
    evaluation_steps : int
        Model versions between evaluations: there it waits until the master has their result; 0 for none.
    check_steps : int
        Model versions between comparisons; what is written is compared as well.
    """

    def __init__(
        self,
        snapshot_s: float | None,
        checkpoint_steps: int = 0,
        evaluation_steps: int = 0,
        check_steps: int = CHECK_STEPS,
    ) -> None:
        self._snapshot_s, self._checkpoint_steps = snapshot_s, checkpoint_steps
        self._evaluation_steps, self._check_steps = evaluation_steps, check_steps
        self._snapshot_due_s: float | None = None  # as soon as the model is built
        self._released: SnapshotName = BASE  # what has been evaluated
        self._checkpointed = 0  # the version of what its group has begun with, if it is a complete checkpoint
        # Numbers of the checkpoint that is wanted out of turn, and of the last one cut in this generation.
        self._wanted = self._cut = 0
        self._written = (
            self._compared
        ) = -1  # the newest version that was written behind a step; in this generation

    @property
    def keeps_states(self) -> bool:
        """Whether states are written to go on from."""
        return self._snapshot_s is not None

    def begin(self, now: float) -> None:
        """The model is built."""
        self._put_off(now)

    def begin_generation(self) -> None:
        """What was wanted of the group before is wanted anew of this one."""
        self._wanted = self._cut = 0
        self._compared = -1  # who was in another one knows of no other

    def hear(self, orders: GroupOrders) -> None:
        """Take in what the master says is done."""
        self._released, self._checkpointed = orders.released, orders.checkpointed

    def want(self, number: int, *, is_staying: bool) -> bool:
        """A checkpoint is wanted out of turn, or none (0): of this state, if it stays, or of the one that rank 0 names next.

        Returns
        -------
        bool
            Whether to write this state.
        """
        if not number or number <= self._cut:
            return False
        if is_staying:
            self._cut = number
        else:
            self._wanted = number
        return is_staying

    def bars(self, name: SnapshotName) -> bool:
        """Whether a state has to be evaluated before the next step; one before training has not."""
        every, version = self._evaluation_steps, name[1]
        is_barrier = every > 0 and version > 0 and version % every == 0
        return is_barrier and name != self._released

    def lacks(self, name: SnapshotName) -> bool:
        """Whether a state that a group begins with is to be a checkpoint still: parts of it may be lost with the group before."""
        generation, version = name
        is_due = self._is_checkpoint(version) and generation != NO_IDENTITY
        return is_due and version != self._checkpointed

    def compares(self, version: int) -> bool:
        """Whether members compare their states of this version: that before training too, and what may be gone back to."""
        return version % self._check_steps == 0 or version == self._compared

    def is_written(self, version: int) -> bool:
        """Whether the step to this version was the last one behind which its state was to be written."""
        return version == self._written

    def named(self, version: int, now: float) -> tuple[int, int]:
        """As rank 0 in the step after this version: what all write next for recovery, and as a checkpoint; 0 for nothing."""
        is_due = self._snapshot_due_s is not None and now >= self._snapshot_due_s
        return version + 1 if is_due else 0, version + 1 if self._wanted else 0

    def on_step(self, step: Step, now: float) -> tuple[bool, bool]:
        """A step is taken; return whether its state is written, and whether as a checkpoint."""
        version = step.version + 1
        is_snapshot = self.keeps_states and version == step.snapshot_at
        is_wanted = version == step.checkpoint_at
        if is_snapshot:
            self._put_off(now)
        if is_wanted:
            self._cut, self._wanted = max(self._cut, self._wanted), 0
        is_checkpoint = is_wanted or self._is_checkpoint(version)
        if is_snapshot or is_checkpoint:
            self._written = self._compared = version
        return is_snapshot or is_checkpoint, is_checkpoint

    def _put_off(self, now: float) -> None:
        if self._snapshot_s is not None:
            self._snapshot_due_s = now + self._snapshot_s

    def _is_checkpoint(self, version: int) -> bool:
        return self._checkpoint_steps > 0 and version % self._checkpoint_steps == 0
