"""The core of a member: its replica of the model, and which step, promise or transfer comes next.

Theory of operation.  A replica is (values, optimizer slots, ledger): one `Store` of the whole model.  Members of a
group take the same steps, each computes a block of the slots and owns a chunk of the sum (`Reduction`), so they stay
equal without anybody comparing them.  The master's orders name a *generation*: a member promises it (takes no part in a
lower one any more, drops the step in work), hears who the members are and which state is the source, takes that state over
whole if it has another one, and goes on.  What it has done is what its ledger says; a state's name has the generation of
its last step, since two groups may come to one version by different gradients.

The values of the next version are worked out by somebody else (`Advance`), while this core hears other things: a large
model's take long.  Meanwhile the state is neither the one nor the other, so it is given to nobody, and a promise waits until
the step is taken: what others have its means of they take too.

A join may wait for the step in work: the promise is given behind the commit, or at once when somebody who has promised
refuses a part.  PROTOCOL: "AllReduce".
"""

from collections.abc import Hashable

from edlz.services.errors import RemoteProtocolError
from edlz.services.parameters.store import Store, read
from edlz.services.protocol.groups import BASE
from edlz.services.protocol.messages import (
    NO_IDENTITY,
    FetchState,
    GroupOrders,
    GroupRefused,
    Identity,
    MemberStatus,
    ReadTables,
    ReadVector,
    Reduce,
    Reduced,
    Refused,
    SlotFailure,
    SnapshotName,
    StatePiece,
)
from edlz.services.protocol.plan import Plan
from edlz.services.storage.state import State
from edlz.services.worker.core.groups.agreement import Agreement
from edlz.services.worker.core.groups.fence import Caution, Fence
from edlz.services.worker.core.groups.handover import Handover
from edlz.services.worker.core.groups.inputs import (
    Advanced,
    Answered,
    Assembled,
    BlockComputed,
    Built,
    Digested,
    Input,
    Loaded,
    MemberOrdered,
    PartWritten,
    Request,
    SlotBegins,
    SlotComputed,
    SlotFailed,
    Tick,
)
from edlz.services.worker.core.groups.instructions import (
    Abandon,
    Advance,
    Compute,
    DigestState,
    Instruction,
    Load,
    Reply,
    StageOwn,
    Tell,
    WritePart,
)
from edlz.services.worker.core.groups.member_exchange import MemberExchange
from edlz.services.worker.core.groups.message_check import check_orders
from edlz.services.worker.core.groups.milestones import Milestones
from edlz.services.worker.core.groups.reduction import OWN
from edlz.services.worker.core.groups.replica_phases import IN_STEP, OF_MEMBERS, STEPS, Phase
from edlz.services.worker.core.groups.state_transfer import part_of
from edlz.services.worker.core.groups.step import Step
from edlz.services.worker.core.groups.told_state import told_of
from edlz.services.worker.core.groups.written_parts import WrittenParts

__all__ = ["BUCKET", "Replica"]

BUCKET = 1 << 20  # elements: 4 MiB (docs/decisions/0044-memory-of-an-exchange.md)


class Replica:
    """A worker's decisions as a member.

    Parameters
    ----------
    me : Identity
        Its incarnation.
    plan : Plan
    milestones : Milestones
        Says which states are written, and which are evaluated.
    bucket : int
        Most elements of one exchange.

    Attributes
    ----------
    phase : Phase
    generation : Identity
        What it has promised.
    name : SnapshotName
        Of its state.
    store : Store or None
        Its state, as soon as the model is built.
    """

    def __init__(self, me: Identity, plan: Plan, milestones: Milestones, bucket: int = BUCKET) -> None:
        self.me, self.plan = me, plan
        self._milestones = milestones
        self.phase = Phase.STARTING
        self.term = 0
        self.store: Store | None = None
        self.name: SnapshotName = BASE
        self.generation: Identity = NO_IDENTITY
        self._source: SnapshotName = BASE  # what its group has begun with
        self._exchange = MemberExchange(me, plan.slots, bucket)  # with the others of this generation
        self._fence = Fence(plan.task_count)
        self._caution = Caution()  # where others have ended
        self._ends: dict[int, int] = {}
        self._pending: Identity | None = None  # a join that is promised behind the commit
        self._failed: SlotFailure | None = None
        self._written = WrittenParts()
        self._loading: SnapshotName | None = None  # what is being read in this generation
        self._unreadable: SnapshotName | None = None
        self._attempt = 0  # numbers computations: one that was abandoned is not the present one
        self._handover = Handover(self._exchange)  # of whole states
        self._agreement = Agreement()

    # -- what is told

    def status(self, now: float) -> MemberStatus:
        """What the master is told."""
        return MemberStatus(
            term=self.term,
            phase=self.phase.value,
            generation=self.generation,
            name=self.name,
            failed=self._failed,
            written=self._written.told,
            unreadable=self._unreadable,
            source=self._source,
            computing=self._caution.minibatch if self.phase is Phase.COMPUTING else None,
            **self._agreement.told,
            **self._exchange.told(self._handover.transfer, now, is_member=self.is_member),
            **told_of(self.store, self.plan),
        )

    @property
    def is_member(self) -> bool:
        """Whether it has the state of its group, and takes its steps."""
        return self.phase in OF_MEMBERS

    @property
    def awaits_orders(self) -> bool:
        """Whether nothing but the master's orders takes it further, and it has nothing to tell before."""
        return self.phase is Phase.WAITING or (self.phase is Phase.PROMISED and self._loading is None)

    # -- inputs

    def feed(self, event: Input, now: float) -> list[Instruction]:
        """Take an input; return what is to be done, in this order.

        Raises
        ------
        RemoteProtocolError
            If what another member or the master says does not fit this job.
        """
        match event:
            case Request():
                return self._on_request(event.to, event.body, now)
            case Answered():
                return self._on_answer(event, now)
            case Tick():
                return list(self._exchange.letters.due(now))
            case MemberOrdered(orders):
                return self._on_orders(orders, now)
            case Built(store):
                self.store, self.name = store, store.begun.name
                self._milestones.begin(now)
                self._enter(Phase.WAITING)
                return [Tell()]
            case SlotBegins():
                return self._caution.on_slot(event) if event.attempt == self._attempt else []
            case SlotComputed():
                if event.attempt == self._attempt:
                    self._exchange.in_work.note(event)
                return []
            case SlotFailed():
                return self._on_failed(event)
            case BlockComputed():
                return self._on_computed(event, now)
            case Advanced():
                return self._on_advanced(now)
            case Digested():
                return self._on_digest(event, now)
            case Assembled():
                return self._on_assembled(event)
            case Loaded():
                return self._on_loaded(event)
            case PartWritten():
                return self._on_written(event)

    def _enter(self, phase: Phase) -> None:
        STEPS.check(self.phase, phase)
        self.phase = phase

    # -- the master

    def _on_orders(self, orders: GroupOrders, now: float) -> list[Instruction]:
        if orders.term < self.term:
            return []
        check_orders(orders)
        out: list[Instruction] = [Tell()] if orders.term > self.term else []
        self.term = orders.term
        self._ends.update(orders.ends)
        self._milestones.hear(orders)
        self._fence.hear(orders.decided, orders.closing)
        out += self._caution.hear(orders)
        if orders.generation < self.generation or self.store is None:
            return out
        if orders.generation > self.generation:
            is_early = orders.is_join and not orders.members and self.phase in IN_STEP
            if is_early or self.phase is Phase.ADVANCING:
                self._pending = orders.generation
                return out
            out += self._promise(orders.generation)
        if orders.load is not None and self.phase is Phase.PROMISED and self._loading != orders.load:
            self._loading = orders.load
            out.append(Load(orders.load))
        if orders.members and self.phase is Phase.PROMISED:
            return [*out, *self._join(orders, now)]
        out += self._on_wanted(orders.checkpoint)
        return [*out, *self._go_on()]

    def _go_on(self) -> list[Instruction]:
        """Take the step that something has kept this member from, as soon as nothing does."""
        match self.phase:
            case Phase.HELD | Phase.BARRED:
                return [] if self._waits_in is self.phase else self._begin_step()
            case Phase.FAILED if self._failed is not None and self._failed.task in self._ends:
                return self._begin_step()
            case _:
                return []

    def _promise(self, generation: Identity) -> list[Instruction]:
        """Nothing of a lower generation will be committed; what is in work is dropped."""
        self._enter(Phase.PROMISED)
        self.generation = generation
        self._pending = self._failed = self._loading = self._unreadable = None
        self._handover.end()
        self._milestones.begin_generation()
        self._attempt += 1
        self._caution.end()
        return [Abandon(), *self._exchange.begin(generation), Tell()]

    def _join(self, orders: GroupOrders, now: float) -> list[Instruction]:
        """The group is formed: go on with it, or take its state over first."""
        if self.me not in {member.incarnation for member in orders.members}:
            raise RemoteProtocolError(f"generation {orders.generation} is formed without this member")
        self._source, layout = orders.source, self._whole.layout
        sizes = layout.dense.size, layout.state.size
        out: list[Instruction] = [*self._exchange.form(orders.members, orders.holders, *sizes)]
        if self.name == orders.source and (not self._agreement.is_in_doubt or self.me in orders.holders):
            self._agreement.accept()  # nobody has a better one any more
            return [*out, *self._begin()]
        if not orders.holders:
            raise RemoteProtocolError(f"nobody holds {orders.source}, the source of {orders.generation}")
        self._enter(Phase.FETCHING)
        return [*out, *self._handover.begin(orders, self._view, now)]

    def _on_loaded(self, event: Loaded) -> list[Instruction]:
        if self.phase is not Phase.PROMISED or event.name != self._loading:
            return []
        if event.state is None:
            self._unreadable = event.name
        else:
            self._take_over(event.state)
        return [Tell()]

    def _take_over(self, state: State) -> None:
        """Go on from a state whose arrays nobody else has."""
        self.store, self.name = Store(state, self.plan.seed, adopts=True), state.name
        self._handover.on_other_state()
        self._agreement.on_other_state(self.name)

    # -- taking the state over

    @property
    def _given(self) -> State | None:
        """The state as it may be given to others now."""
        return None if self.store is None or self.phase is Phase.ADVANCING else self._view

    @property
    def _view(self) -> State:
        """The state as it is now; later steps change it."""
        return self._whole.view(self.name[0])

    def _on_assembled(self, event: Assembled) -> list[Instruction]:
        found = self._handover.on_assembled(event)
        if not isinstance(found, State):
            return [*found]
        self._take_over(found)
        self._agreement.accept()
        return self._begin()

    # -- a step

    @property
    def _whole(self) -> Store:
        assert self.store is not None, "the model is not built"
        return self.store

    def _begin(self) -> list[Instruction]:
        """The group's state is there."""
        out = [self._write_part(is_checkpoint=True)] if self._milestones.lacks(self.name) else []
        return [*out, *self._begin_step()]

    def _seal(self) -> list[Instruction]:
        """No task is open: make this member's part of the last state durable, if there is a place for it."""
        self._enter(Phase.SEALING)
        if self._milestones.keeps_states:
            return [self._write_part(is_last=True), Tell()]
        self._enter(Phase.SEALED)
        return [Tell()]

    def _begin_step(self) -> list[Instruction]:
        waits_in = self._waits_in
        is_checked_last = waits_in is Phase.SEALING and len(self._exchange.members) > 1
        if waits_in is None or is_checked_last:
            is_new = self.phase not in IN_STEP
            out = self._compute()
            return [*out, Tell()] if is_new else out
        if waits_in is Phase.SEALING:
            return self._seal()
        self._enter(waits_in)
        return [Tell()]

    @property
    def _waits_in(self) -> Phase | None:
        """Where this state keeps a member from the next step; None: it may take one."""
        finished = self._whole.ledger.finished
        first = finished.first_missing()
        if first >= self._fence.task_count:
            return Phase.SEALING
        if self._fence.bars(first) or self._fence.closes(self.plan.round_tasks(first), finished):
            return Phase.BARRED
        return Phase.HELD if self._milestones.bars(self.name) else None

    def _compute(self) -> list[Instruction]:
        """Compute this member's block of the step that is next."""
        fence, is_first = self._fence, self.name == self._source
        about = (self._ends, fence.task_count)
        step, slots = self._exchange.begin_step(self.plan, self._whole, *about, is_first=is_first)
        self._failed = None
        self._attempt += 1
        self._enter(Phase.COMPUTING)
        rate = fence.learning_rate(self._whole.ledger.finished.first_missing())
        is_slow = self._caution.begin(step.version)
        return [Compute(self._attempt, step.version, slots, step.block, step.slots, rate, is_slow)]

    def _on_failed(self, event: SlotFailed) -> list[Instruction]:
        if event.attempt != self._attempt:
            return []
        self._enter(Phase.FAILED)
        self._attempt += 1
        self._failed = SlotFailure(task=event.task, index=event.index, error=event.error, failed=event.failed)
        return [Tell()]

    def _on_computed(self, event: BlockComputed, now: float) -> list[Instruction]:
        if event.attempt != self._attempt:
            return []
        step = self._exchange.in_work
        step.learning_rate, step.sums = event.learning_rate, event.sums
        is_due = not step.slots or step.is_first or self._milestones.compares(step.version)
        if is_due and len(self._exchange.members) > 1:
            return [DigestState(("step", self._attempt), self._view)]
        return self._send(now)

    def _on_digest(self, event: Digested, now: float) -> list[Instruction]:
        if self.phase is Phase.COMPUTING and event.key == ("step", self._attempt):
            self._exchange.in_work.checksum = event.digest
            return self._send(now)
        return self._handover.on_digest(event.key, event.digest, self.generation, self._given)

    def _send(self, now: float) -> list[Instruction]:
        """Send the owners their parts; this member's own ones last, and others have their turn between them."""
        self._enter(Phase.STAGED)
        asked, own = self._exchange.send(*self._milestones.named(self._whole.version, now), now)
        first, *others = own
        told = self._caution.finish()
        return [*told, *asked, *self._stage(OWN, first), *(StageOwn(part) for part in others)]

    def _stage(self, to: Hashable, part: Reduce) -> list[Instruction]:
        version = self._whole.version if self.is_member else None
        out: list[Instruction] = []
        for reply in self._exchange.stage(to, part, version):
            if reply.to != OWN:
                out.append(reply)
            elif isinstance(reply.body, Reduced):  # else it is of a step that was dropped
                out += self._on_mean(self._exchange.rank, reply.body)
        return out

    def _on_mean(self, owner: int, mean: Reduced) -> list[Instruction]:
        is_of_step = self.phase is Phase.STAGED and mean.version == self._whole.version
        if not is_of_step or mean.generation != self.generation:
            return []
        step = self._exchange.take(owner, mean)
        if step is None:
            return []
        about = self._exchange.members, self._exchange.rank, step.voters
        is_saved = self._milestones.is_written(step.version)
        if self._agreement.compare(step.checksums, self.name, *about, is_saved=is_saved):
            return self._commit(step)
        # Somebody's state is damaged: the step waits for a generation in which that is mended.
        return [Tell()] if self._pending is None else self._promise(self._pending)

    def _commit(self, step: Step) -> list[Instruction]:
        """Have the step taken."""
        if not step.slots:  # members have the same state to end with
            self._exchange.end_step()
            return self._seal() if self._pending is None else self._promise(self._pending)
        values = step.prepare(self._whole)
        self._enter(Phase.ADVANCING)
        return [Advance(values)]

    def _on_advanced(self, now: float) -> list[Instruction]:
        """The step is taken; then promise what waits for it, or take the next one."""
        step = self._exchange.in_work
        step.take(self._whole)
        self.name = self.generation, self._whole.version
        self._exchange.end_step()
        is_written, is_checkpoint = self._milestones.on_step(step, now)
        out: list[Instruction] = [self._write_part(is_checkpoint=is_checkpoint)] if is_written else []
        if self._pending is not None:
            return [*out, *self._promise(self._pending)]
        return [*out, *self._begin_step()]

    # -- the disk

    def _on_wanted(self, number: int) -> list[Instruction]:
        """A checkpoint is wanted out of turn, or none."""
        is_staying = self.phase in (Phase.HELD, Phase.BARRED, Phase.SEALING, Phase.SEALED)
        if self.is_member and self._milestones.want(number, is_staying=is_staying):
            return [self._write_part(is_checkpoint=True)]
        return []

    def _write_part(self, *, is_checkpoint: bool = False, is_last: bool = False) -> WritePart:
        part = part_of(self._view, self._exchange.rank, len(self._exchange.members))
        return WritePart(self.generation, part, is_checkpoint, is_last)

    def _on_written(self, event: PartWritten) -> list[Instruction]:
        self._written.note(event)
        is_seal = self.phase is Phase.SEALING and event.generation == self.generation
        if is_seal and event.name == self.name and not (event.is_checkpoint or event.error):
            self._enter(Phase.SEALED)
        return [Tell()]

    # -- other members

    def _on_request(self, to: Hashable, body: object, now: float) -> list[Instruction]:
        match body:
            case Reduce():
                self._exchange.check(body)
                self._exchange.note_heard(body.rank, now)
                return self._stage(to, body)
            case FetchState():
                return self._handover.give(to, body, self.generation, self._given)
            case ReadVector() | ReadTables():  # the master's, of the finished state, for its digest
                is_there = self.phase is Phase.SEALED and body.incarnation == self.generation
                return [Reply(to, read(body, self._whole) if is_there else Refused(reason="incarnation"))]
            case _:
                raise RemoteProtocolError(f"a member takes no {type(body).__name__}")

    def _on_answer(self, event: Answered, now: float) -> list[Instruction]:
        assert isinstance(event.key, tuple)
        kind, *about = event.key
        match event.body:
            case Reduced() as mean if kind == "reduce":
                self._exchange.note_answer(event.member, event.key, now)
                return self._on_mean(about[1], mean)
            case StatePiece() as piece if kind == "fetch":
                self._exchange.note_answer(event.member, event.key, now)
                return self._handover.on_piece(piece, about[0])
            case GroupRefused() as refused:
                return self._on_refused(event, refused, now)
            case _:
                raise RemoteProtocolError(f"a member answered {type(event.body).__name__}")

    def _on_refused(self, event: Answered, refused: GroupRefused, now: float) -> list[Instruction]:
        """Ask again a little later; a join that waits for the step waits no longer for who has promised."""
        is_late = self._pending is not None and refused.generation >= self._pending
        if self._pending is not None and is_late and self.phase is not Phase.ADVANCING:
            return self._promise(self._pending)
        self._exchange.letters.on_refused(event.key, now, is_whole=refused.reason == "not here")
        return []
