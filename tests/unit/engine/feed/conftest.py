"""Minibatches of a feed that a test writes."""

import textwrap
from dataclasses import replace

import pytest

from edlz.api.feeds import Mode
from edlz.services.configuration.job_config import JobConfig
from edlz.services.protocol.seeds import permutation
from edlz.services.worker.engine.contract.model_module import load_contract
from edlz.services.worker.engine.feed import bad_record
from edlz.services.worker.engine.feed.feed import FeedSettings, open_feed
from edlz.services.worker.engine.feed.minibatch_streams import Lanes
from edlz.services.worker.engine.tensorflow.backend import tf
from tests.unit.engine.feed.feeds import BATCH, HEAD, TASK, read, record


@pytest.fixture(autouse=True)
def _busy_machine(monkeypatch):
    """On one, the search for a bad record may take longer than users would wait."""
    monkeypatch.setattr(bad_record, "_LIMIT_S", 600.0)


@pytest.fixture
def make(tmp_path):
    """make(source) -> Lanes over tasks of ten records each; they are closed at the end."""
    made = []
    tf.config.experimental.enable_op_determinism()  # as in a worker

    def build(source, *, head=HEAD, codec=False, **settings):
        path = tmp_path / f"model{len(made)}.py"
        path.write_text(head + textwrap.dedent(source))
        contract = load_contract(JobConfig(model_file=str(path)))
        standard = FeedSettings(
            mode=Mode.TRAINING,
            minibatch_size=BATCH,
            seed=5,
            threads=2,
            read=read,
            number=lambda assignment, place: int(permutation(TASK, 5, 1, assignment.task)[place]),
            sample=lambda: [record(0, place) for place in range(BATCH)],
            is_example=codec,
        )
        lanes = Lanes(open_feed(contract, replace(standard, **settings)), contract.code, contract.feed)
        made.append(lanes)
        return lanes

    yield build
    for lanes in made:
        lanes.close()
