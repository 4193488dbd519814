"""Which steps a worker logs the loss of."""

import logging
import math

import pytest

from edlz.services.worker.loss_log import LossLog


def logged(caplog: pytest.LogCaptureFixture, every: int, versions: list[int]) -> list[str]:
    log = LossLog(every)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        for version in versions:
            log.note(version, 0.5, 0, 0)
    return [record.getMessage().rpartition(" ")[2] for record in caplog.records]


def test_a_line_each_so_many_versions(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(caplog, 10, [1, 9, 11, 12, 20, 47, 49]) == ["11", "20", "47"]


def test_versions_that_come_again_are_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(caplog, 10, [101, 40, 45, 51]) == ["101", "51"]


def test_a_version_that_was_pulled_ahead_of_time_is_no_step_back(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(caplog, 10, [101, 99, 102, 110]) == ["101", "110"]


def test_losses_that_are_not_finite_are_warned_of_in_growing_steps(caplog: pytest.LogCaptureFixture) -> None:
    log = LossLog(1000)
    for index in range(100):
        log.note(0, math.nan, 3, index)
    told = [record.getMessage() for record in caplog.records]
    assert told[0] == "Loss = nan at task=3 minibatch=0; minibatches with such a loss here: 1"
    assert [line.rpartition(" ")[2] for line in told] == ["1", "2", "4", "8", "16", "32", "64"]
