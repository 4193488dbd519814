"""How a job ended: the blocks that stay on the terminal.

Pure, but for one thing: the failure block quotes the line of the user's code that raised, if it can be read.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path

from edlz.client.screen.spans import UNICODE, Glyphs, Line, Span
from edlz.client.screen.wording import count_of, duration, how_far, metric, nonfinite_losses, percent, size
from edlz.services.protocol.job_status import MISTAKE, ExportView, FailureView, JobStatus

__all__ = ["Ending", "cause_lines", "exported_text", "failure_block", "stopped_block", "success_block"]

_DIGEST_LETTERS = 8
_CODE_INDENT = " " * 10


@dataclass(frozen=True, slots=True)
class Ending:
    """What the supervisor knows besides the last status.

    Attributes
    ----------
    took_s : float
        Seconds from start to end.
    logs : Path | str
        Where the logs are: their folder, or the command that prints them.
    is_full : bool
        For a file: nothing is shortened.
    word : str
        What finds the job on a command line; its name if empty.
    report : str
        What shows the report that the master has left: a command, or a file on a volume; nothing if there is none.
    """

    took_s: float
    logs: Path | str
    is_full: bool = False
    word: str = ""
    report: str = ""


def success_block(status: JobStatus, ending: Ending, glyphs: Glyphs = UNICODE) -> list[Line]:
    """Return what stands at the end of a job that succeeded."""
    lines: list[Line] = [
        [
            Span("Succeeded", "good"),
            Span(f"  {status.name} in {duration(ending.took_s)}: {_work_done(status)}"),
        ]
    ]
    facts = []
    if status.evaluations:
        newest = status.evaluations[-1]
        facts += [f"{name} {metric(value)} (v{newest.version:,})" for name, value in newest.metrics.items()]
    if status.loss is not None and not (status.evaluations and "loss" in status.evaluations[-1].metrics):
        facts.append(f"loss {metric(status.loss)}")
    if status.lost_workers:
        facts.append(f"{count_of(status.lost_workers, 'worker')} lost")
    if facts:
        lines.append([Span("  " + "   ".join(facts))])
    lines += [[Span(f"  {warning}", "wait")] for warning in (*_not_finite(status), *_left_out(status))]
    if status.exported is not None:
        lines.append([Span("  exported ", "dim"), Span(exported_text(status.exported))])
    if status.predictions:
        lines.append([Span("  output   ", "dim"), Span(status.predictions)])
    if status.digest and not status.is_analysis:  # which has no parameters
        lines += _digest_lines(status, ending, glyphs)
    if ending.report:
        lines.append([Span("  report   ", "dim"), Span(ending.report)])
    return [*lines, [Span("  logs     ", "dim"), Span(str(ending.logs))]]


def exported_text(exported: ExportView) -> str:
    """Say where the model lies."""
    return f"{exported.place}  {size(exported.size_bytes)}"


def _work_done(status: JobStatus) -> str:
    if not status.is_training:
        if status.is_analysis:
            return f"{count_of(status.records, 'record')} analyzed"
        done = "predicted" if status.is_prediction else "evaluated"
        return f"{count_of(status.records, 'record')} {done} with v{status.version:,}"
    steps = f"{count_of(status.version, 'step')}, {count_of(status.minibatches, 'minibatch')}"
    return steps + _each(status)


def _each(status: JobStatus) -> str:
    """What the partitions' own counts say of the minibatches."""
    wrong = [
        f"{'the group' if status.is_allreduce else f'ps-{p.id}'} has {p.missing:,} missing, {p.doubled:,} doubled"
        for p in status.partitions
        if p.missing or p.doubled
    ]
    return "; " + "; ".join(wrong) if wrong else ", each in the model exactly once"


def failure_block(
    failure: FailureView, job_name: str, ending: Ending, status: JobStatus | None = None
) -> list[Line]:
    """Return the first cause of a failure: what, on which data, in which line of whose code, and what to do.

    `status`, if the master left one, tells what is kept.
    """
    lines: list[Line] = [[Span("error: ", "bad"), Span(f'job "{job_name}" failed: {failure.text}')]]
    lines += cause_lines(failure)
    if (
        status is not None
        and status.snapshot is not None
        and (status.snapshot or failure.exit_code != MISTAKE)
    ):
        lines.append([Span("  kept    ", "dim"), Span(_kept(status))])
    lines += _report_line(ending)
    if failure.task is None:
        lines.append([Span("  logs    ", "dim"), Span(str(ending.logs))])
    else:
        command = f"edlz logs {ending.word or job_name} --task {failure.task}"
        what = Span(
            "       full traceback" if failure.traceback else "", "dim"
        )  # a process that was killed has none
        lines.append([Span("  log     ", "dim"), Span(command), what])
    for place, line in enumerate(failure.help.splitlines()):
        lines.append([Span("      " if place else "help: ", "bold"), Span(line)])
    return lines


def cause_lines(failure: FailureView) -> list[Line]:
    """Return where a failure comes from: on which data, in which line of whose code, and what that raised."""
    lines: list[Line] = []
    if failure.data:
        lines.append([Span("  data    ", "dim"), Span(failure.data)])
    if failure.where:
        lines.append([Span("  code    ", "dim"), Span(failure.where)])
        quoted = _source_line(failure.where, failure.source)
        if quoted:
            lines.append([Span(f"{_CODE_INDENT}  {quoted}", "bold")])
    if failure.error:
        lead = _CODE_INDENT if failure.where else "  error   "
        lines.append([Span(lead, "dim"), Span(failure.error)])
    return lines


def _kept(status: JobStatus) -> str:
    """What the job can go on from."""
    if not status.snapshot and not status.checkpoint:
        return "nothing yet: it goes on from the beginning"
    if (status.checkpoint or 0) > (status.snapshot or 0):
        age = (
            ""
            if status.checkpoint_age_s is None
            else f", checkpoint of {duration(status.checkpoint_age_s)} ago"
        )
        return f"v{status.checkpoint:,}{age}"
    age = "" if status.snapshot_age_s is None else f", snapshot of {duration(status.snapshot_age_s)} ago"
    share = "" if status.snapshot_share is None else f" ({percent(status.snapshot_share)})"
    return f"v{status.snapshot:,}{share}{age}"


def _not_finite(status: JobStatus) -> list[str]:
    """What a job that has succeeded has to say all the same, if it has diverged."""
    lines = [nonfinite_losses(status)] if status.nonfinite_losses else []
    newest = status.evaluations[-1].metrics if status.evaluations else {}
    odd = [name for name, value in newest.items() if not math.isfinite(value)]
    if odd:
        lines.append(
            f"the finished model's {', '.join(odd)} {'is' if len(odd) == 1 else 'are'} NaN or infinite"
        )
    if lines:
        lines[-1] += "; --stop_on_nan ends a job there" if status.nonfinite_losses else ""
    elif status.loss is not None and not math.isfinite(status.loss):
        lines.append("the last loss is NaN or infinite; --stop_on_nan ends a job there")
    return lines


def _left_out(status: JobStatus) -> list[str]:
    """What `--skip_bad_tasks` has left out of the job."""
    lines = []
    if status.skipped_tasks:
        minibatches = count_of(status.skipped_minibatches, "minibatch")
        lines.append(f"{count_of(status.skipped_tasks, 'task')} skipped after errors: {minibatches} left out")
    if status.skipped_evaluation_tasks:
        kind, without = "evaluation", "the metrics are without"
        if status.is_prediction:
            kind, without = "prediction", "there are no rows for"
        if status.is_analysis:
            kind, without = "analysis", "the statistics are without"
        tasks = count_of(status.skipped_evaluation_tasks, f"{kind} task")
        lines.append(f"{tasks} skipped after errors: {without} their records")
    return lines


def stopped_block(status: JobStatus | None, job_name: str, ending: Ending) -> list[Line]:
    """Return what stands after Ctrl-C or SIGTERM."""
    if status is None:
        lines: list[Line] = [[Span("Stopped", "wait"), Span(f"  {job_name} before it began.")]]
    else:
        of_all = "" if status.is_endless else f" of {status.epochs}"
        epoch = f"epoch {status.epoch}{of_all}, " if status.is_training else ""
        version = "" if status.is_analysis else f", {epoch}v{status.version:,}"
        where = f" at {how_far(status.share, status.records)}{version}"
        fewer = f" (or with fewer: edlz resume {job_name} --num_workers=1)"
        lines = [[Span("Stopped", "wait"), Span(f"  {job_name}{where}. {_saved(status)}")]]
        has_more = status.target_workers > 1
        go_on = [Span("  go on   ", "dim"), Span(f"edlz resume {job_name}")]
        lines.append([*go_on, Span(fewer, "dim")] if has_more else go_on)
        lines.append([Span("  forget  ", "dim"), Span(f"edlz rm {job_name}")])
    return [*lines, *_report_line(ending), [Span("  logs    ", "dim"), Span(str(ending.logs))]]


def _report_line(ending: Ending) -> list[Line]:
    return [[Span("  report  ", "dim"), Span(ending.report)]] if ending.report else []


def _saved(status: JobStatus) -> str:
    """Return what a stop has kept."""
    if status.is_prediction or status.is_analysis:  # tasks whose files are there are not done again
        return "Nothing is lost."
    if not status.is_training:
        return "It begins again when it is resumed."
    if not status.version:
        return "Nothing was trained yet."
    kept = max(status.checkpoint or 0, status.snapshot or 0)
    if kept >= status.version:
        return "Nothing is lost."
    if not kept:
        return "Nothing could be saved: it begins again when it is resumed."
    return f"Saved is v{kept:,}: what came after it is trained again."


def _digest_lines(status: JobStatus, ending: Ending, glyphs: Glyphs) -> list[Line]:
    """Return the digest, and what it depends on: a worker has as many threads as this machine or its pod has cores."""
    digest = status.digest.removeprefix("sha256:")
    is_short = not ending.is_full and len(digest) > _DIGEST_LETTERS
    shown = digest[:_DIGEST_LETTERS] + glyphs.ellipsis if is_short else digest
    line, more = [Span("  digest   ", "dim"), Span(f"sha256 {shown}")], list[Line]()
    if status.mode == "sync" and status.is_training:
        depends = f"at --grads_to_wait={status.slots}"
        if status.threads:
            depends += f" --worker_threads={status.threads} and on CPUs of one type"
        line.append(Span(" (the same on any number of workers and ps", "dim"))
        more.append([Span(f"           {depends})", "dim")])
    return [line, *more]


def _source_line(where: str, source: str = "") -> str:
    """Return `41 |     age = …` for `model.py:41 in feed`; nothing if the line was not sent and the file is not here."""
    found = re.match(r"(?P<path>.+):(?P<line>\d+)( in .*)?$", where)
    if found is None:
        return ""
    if source:
        return f"{found['line']} | {source}"
    try:
        lines = Path(found["path"]).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""  # the file lies on another machine; its place has been said
    number = int(found["line"])
    return f"{number} | {lines[number - 1]}" if number <= len(lines) else ""
