"""Which state a new group goes on from where members' states are in doubt."""

from edlz.services.master.core.groups.events import Tell
from edlz.services.master.core.groups.rendezvous import Stage
from edlz.services.master.core.groups.sources import Sources, is_before
from edlz.services.protocol.groups import BASE
from edlz.services.protocol.messages import Identity, SnapshotName
from tests.unit.groups.test_rendezvous import Group, life, status

ONE, TWO = (1, 1), (1, 2)


def name(version: int, generation: Identity = ONE) -> SnapshotName:
    return generation, version


def in_doubt(version: int, agreed: int, **fields: object) -> dict[str, object]:
    return {"name": name(version), "agreed": name(agreed), "is_doubtful": True, **fields}


def find(
    sources: Sources, saved: tuple[int, ...], *said: dict[str, object]
) -> dict[Identity, SnapshotName] | None:
    statuses = {life(n): status(**fields) for n, fields in enumerate(said, 1)}
    return sources.find(tuple(statuses), statuses, [name(version) for version in saved])


def test_all_go_back_to_the_newest_saved_state_that_was_the_same_on_all() -> None:
    sources = Sources()
    doubtful = in_doubt(9, 6), in_doubt(9, 6, differs_from=life(1))
    assert find(sources, (3, 6, 8), *doubtful) is None
    assert (sources.load, sources.certain) == ((life(1), name(6)), name(6))
    loaded = in_doubt(6, 6), doubtful[1]
    assert find(sources, (3, 6, 8), *loaded) == {life(1): name(6)}
    assert find(Sources(), (3, 6, 8), *loaded) == {life(1): name(6)}, "a later master hears it, too"


def test_who_has_not_heard_that_states_differ_is_in_doubt_too() -> None:
    sources = Sources()
    assert find(sources, (5,), in_doubt(9, 6), {"name": name(9), "agreed": name(6)}) is None
    found = find(sources, (5,), {"name": name(5)}, {"name": name(9), "agreed": name(6)})
    assert found == {life(1): name(5)}, "the one in doubt has loaded the state"


def test_a_member_that_has_an_older_state_gives_it() -> None:
    sources = Sources()
    assert find(sources, (3,), in_doubt(9, 6), {"name": name(4)}) == {life(2): name(4)}
    assert (sources.load, sources.certain) == (None, name(6))


def test_nobody_goes_back_to_a_state_twice() -> None:
    sources = Sources()
    for saved, version in (((6,), 6), ((6, 12), 12)):
        sources.begin()
        assert find(sources, saved, in_doubt(version + 3, version)) is None
        assert find(sources, saved, {"name": name(version)}, in_doubt(version + 3, version)) == {
            life(1): name(version)
        }
        sources.end()
        sources.begin()
        said = in_doubt(version + 1, version), in_doubt(version + 1, version, differs_from=life(1))
        assert find(sources, saved, *said) == {life(1): name(version + 1)}, "the state of most is taken"
        assert sources.certain is None
        sources.end()


def test_what_cannot_be_read_is_not_gone_back_to() -> None:
    sources = Sources()
    sources.note_unreadable(life(1), name(6))
    assert find(sources, (6,), in_doubt(9, 6)) == {life(1): name(9)}
    assert sources.certain is None


def test_a_state_of_a_history_that_went_further_is_not_before() -> None:
    assert is_before(name(5), name(6, TWO))
    assert not is_before(name(9), name(6, TWO))
    assert not is_before(name(6, TWO), name(9))


def test_members_in_doubt_begin_a_generation_and_what_was_saved_behind_is_not_read() -> None:
    group = Group(durable={(((0, 0), 0), False)})
    group.form(1, 2)
    formed = group.core.generation
    for version in (4, 8):
        group.core._states.add((formed, version), is_checkpoint=False)
    agreed = {"agreed": (formed, 6), "name": (formed, 9)}
    group.computing(1, phase="staged", **agreed, is_doubtful=True, differs_from=life(2))
    assert group.core.stage is Stage.GATHERING
    said = {"phase": "promised", "generation": group.core.generation, **agreed}
    group.say(1, **said, is_doubtful=True, differs_from=life(2))
    told = group.say(2, **said)
    assert [
        (one.is_warning, "v4 was the same on all" in one.text) for one in told if isinstance(one, Tell)
    ] == [(True, True)]
    assert group.core.durable == (BASE, (formed, 4))
    assert group.core.orders(life(1)).load == (formed, 4)
    group.say(1, **{**said, "name": (formed, 4)})
    orders = group.core.orders(life(2))
    assert (orders.source, orders.holders) == ((formed, 4), (life(1),))
