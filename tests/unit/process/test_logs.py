"""Log lines: the classic format, JSON, and repetitions counted."""

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from edlz.services.process.logs import INCIDENT, CountingHandler, configure_logging

logger = logging.getLogger("edlz.test_logs")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    root.handlers[:] = []
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def test_the_classic_line() -> None:
    out = io.StringIO()
    configure_logging("INFO", stream=out)
    logger.info("Evaluation metrics[v=%d]: %s", 50, {"accuracy": 0.77})
    logger.debug("not shown")
    assert re.fullmatch(
        r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] \[INFO\] "
        r"\[test_logs\.py:\d+:test_the_classic_line\] Evaluation metrics\[v=50\]: \{'accuracy': 0\.77\}\n",
        out.getvalue(),
    )


def test_json_lines_have_the_named_arguments_as_fields() -> None:
    out = io.StringIO()
    configure_logging("INFO", "json", role="worker", ident="3", job="mnist", stream=out)
    logger.warning("slow push worker=%s version=%d took %.1fs", "3", 354, 2.5, extra={"task": 237})
    line = json.loads(out.getvalue())
    assert line["level"] == "WARNING"
    assert (line["role"], line["id"], line["job"]) == ("worker", "3", "mnist")
    assert line["event"] == "slow push worker=3 version=354 took 2.5s"
    assert (line["worker"], line["version"], line["task"]) == ("3", 354, 237)
    assert isinstance(line["ts"], float)


def test_a_traceback_stays_in_its_json_line() -> None:
    out = io.StringIO()
    configure_logging("INFO", "json", stream=out)
    try:
        raise ValueError("bad\nvalue")
    except ValueError:
        logger.exception("it failed")
    (text,) = out.getvalue().splitlines()
    assert "ValueError: bad" in json.loads(text)["traceback"]


def test_configuring_again_replaces_what_was() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure_logging("INFO", stream=first)
    configure_logging("WARNING", stream=second)
    logger.info("one")
    logger.warning("two")
    assert first.getvalue() == ""
    assert second.getvalue().endswith("two\n")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_line_that_repeats_is_printed_once_then_counted() -> None:
    out, clock = io.StringIO(), Clock()
    handler = CountingHandler(out, clock)
    log = logging.Logger("counted")
    log.addHandler(handler)
    for second in range(12):
        clock.now = float(second)
        log.info("again %d", 1)
        log.info("each %d", second)
    assert out.getvalue().count("again 1") == 1
    assert out.getvalue().count("each") == 12
    clock.now = 60.0
    log.info("other")
    assert "times" not in out.getvalue()
    clock.now = 60.5
    log.info("one more")
    assert "again 1 (12 times in 60s)\n" in out.getvalue()
    log.info("again 1")
    assert out.getvalue().endswith("again 1\n")


def counted(out: io.StringIO, clock: Clock) -> logging.Logger:
    log = logging.Logger("counted")
    log.addHandler(CountingHandler(out, clock))
    return log


def test_what_comes_again_after_some_quiet_is_told_at_once() -> None:
    """A fault that was over and is there again; what repeated before it is counted first."""
    out, clock = io.StringIO(), Clock()
    log = counted(out, clock)
    for clock.now in (0.0, 1.0, 2.0):
        log.warning("no answer")
    clock.now = 22.0
    log.warning("no answer")
    assert out.getvalue().splitlines() == ["no answer", "no answer (3 times in 22s)", "no answer"]
    clock.now = 23.0
    log.warning("no answer")
    assert out.getvalue().count("\n") == 3


def test_every_incident_is_told() -> None:
    """The second loss of a master a moment after the first is no repetition."""
    out, clock = io.StringIO(), Clock()
    log = counted(out, clock)
    for clock.now in (0.0, 3.0, 4.0):
        log.info("%s", "master lost", extra=INCIDENT)
    assert out.getvalue() == "master lost\n" * 3


def test_an_incident_looks_like_any_line_in_json() -> None:
    out = io.StringIO()
    configure_logging("INFO", "json", stream=out)
    logger.info("master lost", extra=INCIDENT)
    assert "is_incident" not in out.getvalue()


def test_counts_that_are_open_at_the_end_are_printed() -> None:
    out, clock = io.StringIO(), Clock()
    handler = CountingHandler(out, clock)
    log = logging.Logger("counted")
    log.addHandler(handler)
    log.info("x")
    clock.now = 5.0
    log.info("x")
    handler.close()
    assert out.getvalue() == "x\nx (2 times in 5s)\n"


@pytest.mark.parametrize(
    ("name", "path", "level", "is_told"),
    [
        ("botocore.endpoint", "/x/lib/python3.11/site-packages/botocore/endpoint.py", "DEBUG", False),
        ("botocore.endpoint", "/x/lib/python3.11/site-packages/botocore/endpoint.py", "INFO", True),
        ("edlz.services", "/x/lib/python3.11/site-packages/edlz/services/a.py", "DEBUG", True),
        ("my_model", "/home/me/my_model.py", "DEBUG", True),
    ],
)
def test_what_packages_say_to_who_looks_for_their_mistakes_is_not_told(
    name: str, path: str, level: str, is_told: bool
) -> None:
    out = io.StringIO()
    configure_logging("DEBUG", stream=out)
    number = logging.getLevelNamesMapping()[level]
    record = logging.LogRecord(name, number, path, 1, "headers={'Authorization': 'a-secret'}", None, None)
    logging.getLogger(name).handle(record)
    assert ("a-secret" in out.getvalue()) == is_told
