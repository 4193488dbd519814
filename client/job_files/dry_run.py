"""`--dry-run`: what a job would be, with nothing started and nothing created."""

from collections.abc import Sequence

from edlz.client.screen.columns import aligned
from edlz.client.screen.spans import Line, Span
from edlz.client.screen.terminal import print_lines, print_text
from edlz.client.screen.wording import count_of
from edlz.services.configuration.arguments import Reading
from edlz.services.configuration.job_config import JobConfig, Scalar, flags

__all__ = ["plan_lines", "print_plan", "setting_lines"]


def print_plan(
    reading: Reading, records: int | None = None, tasks: int | None = None, objects: Sequence[Line] = ()
) -> None:
    """Print the settings that are not defaults, the plan, and what would be created."""
    print_text(setting_lines(reading))
    print_text(plan_lines(reading.config, records, tasks))
    print_lines(objects)


def setting_lines(reading: Reading) -> list[Line]:
    """Return each setting that is not its default, with where it comes from."""
    rows = []
    for about in flags():
        setting, value = reading.settings.get(about.name), getattr(reading.config, about.name)
        if setting is None or value == about.default or about.name == "dry_run":
            continue
        over = f", over default {_shown(about.default)}" if about.default not in ("", None) else ""
        rows.append([about.name, _shown(value), f"{setting.place or 'command line'}{over}"])
    return aligned(["SETTING", "VALUE", "FROM"], rows)


def plan_lines(config: JobConfig, records: int | None, tasks: int | None) -> list[Line]:
    """Return how much work the job is, as far as the data can be seen from here."""
    if records is None or tasks is None:
        return [[Span("plan: ", "dim"), Span("known when the master has seen the data")]]
    if config.purpose != "training":
        text = f"{count_of(records, 'record')}: about {count_of(tasks, 'task')} of {config.purpose}"
        return [[Span("plan: ", "dim"), Span(text)]]
    minibatches = -(-records // config.minibatch_size)
    steps = -(-minibatches // config.grads_to_wait)
    text = f"{count_of(records, 'record')}: about {count_of(tasks, 'task')} and {count_of(steps, 'step')} an epoch"
    mode = "async" if config.use_async else f"k={config.grads_to_wait}"
    epochs = count_of(config.num_epochs, "epoch") if config.num_epochs else "epochs without end"
    if config.watch_data:
        text, epochs = text.removesuffix(" an epoch"), "and whatever comes"
    return [[Span("plan: ", "dim"), Span(f"{text} at {mode}, {epochs}")]]


def _shown(value: Scalar) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
