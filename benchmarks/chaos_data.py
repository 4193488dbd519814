"""The records of the chaos runs, and how many minibatches and versions they make."""

from pathlib import Path

import numpy as np

from benchmarks.chaos_schedule import Mode
from edlz.api.recordio import Writer

__all__ = ["EVALUATED", "FLAGS", "IDS", "LIKE_GROUP", "MODES", "VERSIONS", "write_data"]

IDS = 6  # of a record
SHARDS = (301, 299, 250)  # records of each; the last task of each is a short one
EVALUATED = 130  # records to evaluate on
EPOCHS, BATCH, TASK = 4, 4, 40
GROUP_EPOCHS, GROUP_SLOTS = 6, 4  # of an all-reduce job
# A job with parameter servers ends with the same bits.
LIKE_GROUP = (
    f"--num_epochs={GROUP_EPOCHS}",
    f"--grads_to_wait={GROUP_SLOTS}",
    "--model_params=is_dense=True",
)

FLAGS = (
    f"--model_file={Path(__file__).with_name('chaos_model.py')}",
    f"--minibatch_size={BATCH}",
    f"--records_per_task={TASK}",
    "--evaluation_steps=100",
    "--checkpoint_steps=40",
    "--keep_checkpoint_max=2",
    "--recovery_snapshot_secs=0.3",
    "--worker_threads=1",
    "--log_level=DEBUG",
)
MODES: dict[Mode, tuple[str, ...]] = {
    "sync": (f"--num_epochs={EPOCHS}", "--grads_to_wait=2"),
    "async": (f"--num_epochs={EPOCHS}", "--use_async"),
    "allreduce": (*LIKE_GROUP, "--distribution_strategy=AllreduceStrategy"),
}
# At least: tasks of one round may differ in length.
VERSIONS: dict[Mode, int] = {
    "sync": EPOCHS * sum(SHARDS) // BATCH // 2,
    "async": EPOCHS * sum(SHARDS) // BATCH,
    "allreduce": GROUP_EPOCHS * sum(SHARDS) // BATCH // GROUP_SLOTS,
}


def write_data(folder: Path) -> Path:
    """Write the records, always the same ones, into `train` and `test` of a new folder."""
    draw = np.random.default_rng(11)
    for name, shards in (("train", SHARDS), ("test", (EVALUATED,))):
        (folder / name).mkdir(parents=True)
        number = 0
        for shard, count in enumerate(shards):
            with Writer(folder / name / f"part-{shard}") as writer:
                for _ in range(count):
                    ids = draw.integers(0, 200, IDS)
                    writer.write(f"{','.join(map(str, ids))},{draw.normal():.3f},{number}".encode())
                    number += 1
    return folder
