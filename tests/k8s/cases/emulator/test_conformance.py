"""The emulated API server answers as a real Kubernetes 1.36.2 did."""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.k8s.server.api_server import ApiServer
from tests.k8s.server.replay import RECORDS, Replay


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    with ApiServer() as server:
        server.set_too_large_wait(0.1)
        server.set_bookmark_interval(0.2)
        replay = Replay(server)
        asyncio.run(replay.run())
        yield replay


@pytest.mark.parametrize("record", RECORDS, ids=[record["name"] for record in RECORDS])
def test_an_answer_is_that_of_the_real_server(replay: Replay, record: dict[str, Any]) -> None:
    found = _without_repeats(replay.comparable(replay.answers[record["name"]]))
    assert found == _without_repeats(replay.comparable(replay.expected(record)))


def test_revisions_keep_their_order(replay: Replay) -> None:
    here = [revision for _, revision in replay.revisions]
    assert len(here) > 30
    assert all(first <= second for first, second in itertools.pairwise(here)), replay.revisions


def _without_repeats(answer: dict[str, Any]) -> dict[str, Any]:
    """Count bookmarks in a row as one: how many come depends on the time."""
    events = answer.get("events")
    if events is None:
        return answer
    kept = [
        event
        for event, following in itertools.zip_longest(events, events[1:])
        if not (event["type"] == "BOOKMARK" and following is not None and following["type"] == "BOOKMARK")
    ]
    return {**answer, "events": kept}
