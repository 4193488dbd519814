"""`edlz train --check`: a job's model tried on one minibatch in this process; nothing is started, nothing is trained."""

import logging
import os
import sys
from contextlib import closing
from typing import TYPE_CHECKING

from edlz.client.local.start_up_noise import without_start_up_noise
from edlz.client.screen.columns import aligned
from edlz.client.screen.spans import Line, Span
from edlz.client.screen.terminal import print_text
from edlz.client.screen.verdict_text import cause_lines
from edlz.client.screen.wording import count_of, metric
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import EdlzError, ModelError
from edlz.services.master.core.tasks.task_failures import failure_of_worker
from edlz.services.master.planning import make_plan
from edlz.services.protocol.job_status import MISTAKE
from edlz.services.worker.core.computation import Built
from edlz.services.worker.engine.keras_engine import KerasEngine
from edlz.services.worker.engine.user_code.user_code import failure_of, telling_exits
from edlz.services.worker.member_base import refuse_for_members, warn_of_large_embeddings

if TYPE_CHECKING:  # it imports TensorFlow
    from edlz.services.worker.engine.model_check import TriedMinibatch

__all__ = ["check_here"]


def check_here(config: JobConfig) -> int:
    """Check the model of a job, and print what it is or what is wrong; return the command's exit code.

    Raises
    ------
    EdlzError
        If it is not the model's fault: data cannot be read.
    """
    logging.getLogger().setLevel(logging.WARNING)
    try:
        with (
            without_start_up_noise(),
            closing(KerasEngine(config, make_plan(config), max(1, config.num_ps_pods))) as trainer,
            telling_exits(),
        ):
            built = trainer.build()
            if config.is_allreduce:
                refuse_for_members(built)
                warn_of_large_embeddings(built)
            tried = trainer.check()
    except ModelError as error:
        _print_mistake(error)
        return MISTAKE
    print_text(_summary(config, built, tried))
    return 0


def _print_mistake(error: EdlzError) -> None:
    view = failure_of_worker(failure_of(error), is_mistake=True)
    if os.environ.get("EDLZ_DEBUG") and view.traceback:
        print(view.traceback, file=sys.stderr)
    lines: list[Line] = [[Span("error: ", "bad"), Span(view.text)], *cause_lines(view)]
    if view.help:
        lines.append([Span("help: ", "bold"), Span(view.help)])
    print_text(lines, sys.stderr)


def _summary(config: JobConfig, built: Built, tried: "TriedMinibatch | None") -> list[Line]:
    dense = built.layout.dense
    rows = [
        [
            "  model",
            f"{count_of(dense.element_count, 'parameter')} in {count_of(len(dense.variables), 'variable')}",
        ]
    ]
    for table in built.tables:
        about = f"rows of {table.dim}, {table.initializer.kind} at first, {table.optimizer.name}"
        rows.append(["  table", f"{table.path}: {about}"])
    if tried is None:
        rows.append(["  minibatch", "none was tried: feed() left out all records that were read"])
    else:
        rows += [
            ["  optimizer", f"{built.optimizer.name}, learning rate {metric(tried.learning_rate)}"],
            ["  minibatch", f"features {tried.features}, labels {tried.labels}"],
            ["  gives", f"predictions {tried.predictions}, loss {metric(tried.loss)}"],
        ]
        if tried.formats:
            signatures = f" (signatures {', '.join(tried.signatures)})" if tried.signatures else ""
            formats = [name + signatures * (name == "saved_model") for name in tried.formats]
            rows.append(["  export", f"possible as {', '.join(formats)}"])
    if config.is_for_cluster:
        rows.append(
            ["  where", "on this machine, by what is installed here: nothing was looked at in an image"]
        )
    title: Line = [Span("Checked", "good"), Span(f"  {config.job_name}: this model can be trained")]
    return [
        title,
        *aligned(["", ""], rows)[1:],
        [Span("next: ", "bold"), Span("the same command without --check")],
    ]
