"""A job of seconds with embedding tables, for the tests that disturb it, and what it gives undisturbed."""

from pathlib import Path

from tests.processes import MODELS, HandJob

__all__ = ["FLAGS", "MODES", "undisturbed_digest"]

FLAGS = (
    f"--model_file={MODELS}/tiny_tables.py",
    "--embedding_threshold_bytes=0",
    "--minibatch_size=5",
    "--records_per_task=50",
    "--worker_threads=1",
    "--num_epochs=5",
    "--log_level=DEBUG",
)
MODES = {"sync": "--grads_to_wait=2", "async": "--use_async"}


def undisturbed_digest(folder: Path, mnist: Path) -> str:
    """Run it in synchronous mode on one worker; whatever is done to it otherwise must give the same bits."""
    flags = (*FLAGS, MODES["sync"], f"--training_data={mnist}/train")
    with HandJob(folder, *flags, partitions=0).start(1) as job:
        return job.finish().digest
