"""The hint that a feed holds training up: once, and only if it does."""

import logging

import pytest

from edlz.services.worker.engine.feed.feed import FIRST, LOOKED_AT, SlowFeed


def feed(dataset, mode, metadata):
    return dataset


@pytest.mark.parametrize(("waited_s", "hints"), [(0.004, 1), (0.002, 0)])
def test_it_is_told_once_if_waiting_takes_longer_than_computing(waited_s, hints, caplog):
    caplog.set_level(logging.INFO)
    slow = SlowFeed(feed)
    for _ in range(FIRST):
        slow.note(1.0, 0.0)  # while everything begins
    for _ in range(3 * LOOKED_AT):
        slow.note(waited_s, 0.003)
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == hints  # a terminal shows warnings alone
    assert all("feed() takes longer than the model; with @edlz.api.batched" in text for text in warnings)
    figures = [text for text in caplog.messages if text not in warnings]
    assert figures == ["of a step, 4.0 ms are waiting for records and 3.0 ms computing"] * hints
