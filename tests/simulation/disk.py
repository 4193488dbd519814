"""The folders of partitions and of checkpoints, as far as the cores see them."""

from pathlib import Path
from typing import Any

from edlz.services.errors import DataError
from edlz.services.protocol.messages import NO_IDENTITY, Ends, Job
from edlz.services.storage import complete_checkpoints
from edlz.services.storage.checkpoint_records import Manifest, version_of
from edlz.services.storage.state import State

__all__ = ["CheckpointFolder", "Disk"]


class CheckpointFolder:
    """Complete checkpoints by version, the newest of them kept."""

    def __init__(self, keeps: int) -> None:
        self._keeps = keeps  # 0: all
        self.versions: dict[int, tuple[Manifest, list[State]]] = {}

    def complete(self, manifest: Manifest, states: list[State], needed: tuple[int, ...] = ()) -> None:
        """Take a manifest that makes its version valid, and remove what is not kept."""
        self.versions[manifest.version] = (manifest, states)
        # Another run's are older, and so are those of before a task was ended.
        ages = ((version, found) for version, (found, _) in self.versions.items())
        age = {version: (found.run == manifest.run, len(found.ends or ())) for version, found in ages}
        for version in sorted(self.versions, key=lambda each: (age[each], each), reverse=True)[self._keeps :]:
            if self._keeps and version not in needed:
                del self.versions[version]


class Disk:
    """One partition's folder: snapshots by name, and which lives have a link to each.

    Parameters
    ----------
    partition : int
        Whose.
    folder : CheckpointFolder, optional
        Where the job's checkpoints are.
    can_link : bool, optional
        Whether a checkpoint's part can become a snapshot without being copied.

    Attributes
    ----------
    full_until : until then nothing can be written
    damaged : what cannot be read, as is found when somebody tries
    """

    def __init__(
        self, partition: int = 0, folder: CheckpointFolder | None = None, *, can_link: bool = True
    ) -> None:
        self.full_until = 0.0
        self.damaged: set[Any] = set()
        self._partition, self._can_link = partition, can_link
        self._folder = CheckpointFolder(keeps=0) if folder is None else folder
        self._job: Job | None = None
        self._seen: list[Manifest] = []
        self.states: dict[Any, State] = {}
        self.links: dict[Any, set[Any]] = {}

    def wipe(self) -> None:
        """Lose everything."""
        self.states, self.links = {}, {}

    def open(self, job: Job) -> None:
        self._job = job
        self.refresh()

    def refresh(self) -> None:
        self._seen = [manifest for manifest, _ in self._folder.versions.values()]

    def names(self) -> tuple[Any, ...]:
        return tuple(self.states)

    def checkpoints(self, ends: Ends) -> tuple[Any, ...]:
        names = [name for manifest in self._seen if (name := self._name(manifest, ends)) is not None]
        return tuple(name for name in names if name not in self.damaged)

    def _name(self, manifest: Manifest, ends: Ends) -> Any:
        assert self._job is not None
        own = complete_checkpoints.named_part(manifest, self._job, self._partition, ends)
        return None if own is None else own[0]

    def load(self, name: Any, life: Any, ends: Ends) -> State:
        if name in self.damaged:
            self.states.pop(name, None)
            raise DataError(f"{name} is damaged")
        if name in self.states:
            return self.states[name]
        for manifest, states in self._folder.versions.values():
            if self._name(manifest, ends) == name:
                state = states[self._partition]
                if self._can_link:
                    self._keep(name, state, life)
                return state
        self.refresh()
        raise DataError(f"checkpoint {name} is gone")

    def load_checkpoint(self, folder: str) -> State:
        found = self._folder.versions.get(version_of(Path(folder)))
        if found is None:
            raise DataError(f"checkpoint {folder} is gone")
        return found[1][self._partition]

    def write(self, state: State, life: Any) -> None:
        self._keep(state.name, state, life)

    def _keep(self, name: Any, state: State, life: Any) -> None:
        self.states[name] = state
        self.links.setdefault(name, set()).add(life)

    def unlink(self, name: Any, life: Any) -> None:
        """A life removes its own links and those of older lives, never a later life's."""
        if name[0] == NO_IDENTITY:  # the base
            return
        self.links[name] = {other for other in self.links.get(name, ()) if other > life}
        if not self.links[name]:
            self.states.pop(name, None)
