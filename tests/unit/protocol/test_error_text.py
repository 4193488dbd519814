"""What is told of an error: the line that says what is wrong, and the user's own frame, never a library's."""

import sys
import traceback
from pathlib import Path

import pytest

import edlz.model_zoo
from edlz.services.error_text import is_library, main_line
from edlz.services.inputs import listing
from edlz.services.supervision.post_mortem import LastWords, last_words

INFO = "[2026-05-04 09:12:03,120] [INFO] [service.py:118:run] Starting worker: 0"
WARNING = "[2026-05-04 09:12:04,120] [WARNING] [ps.py:1:x] the disk is nearly full"
ZOO = next(iter(edlz.model_zoo.__path__))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (listing.__file__, True),
        (pytest.__file__, True),
        (traceback.__file__, True),
        ("/opt/venv/lib/python3.12/site-packages/numpy/x.py", True),
        ("/usr/lib/python3.12/json/decoder.py", True),
        ("<frozen importlib._bootstrap>", True),
        ("/tmp/__autograph_generated_fileab12.py", True),
        (f"{ZOO}/mnist/mnist_subclass.py", False),
        ("model.py", False),
        ("/work/models/services/model.py", False),
    ],
)
def test_what_is_a_library(path, expected):
    assert is_library(path) is expected


def test_a_users_folder_is_theirs_wherever_it_lies_but_not_what_is_installed_in_it():
    zoo = Path("/x/site-packages/zoo")
    assert not is_library(f"{zoo}/model.py", zoo)
    assert is_library(f"{zoo}/.venv/lib/python3.11/site-packages/keras/a.py", zoo)
    assert is_library(listing.__file__, Path(listing.__file__).parent)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("one\n\ntwo", "one"),
        (
            "in user code:\n\n    File 'x', line 3\n      ^^^^\n    ValueError: bad shape\n",
            "ValueError: bad shape",
        ),
        ("{{function_node __wrapped}} indices[0] = 12 [Op:GatherV2] name: ", "indices[0] = 12"),
    ],
)
def test_the_line_that_says_what_is_wrong(text, line):
    assert main_line(text) == line


def raised(function) -> list[str]:
    """What Python prints of an error."""
    try:
        function()
    except BaseException as error:
        return "".join(traceback.format_exception(error)).splitlines()
    raise AssertionError


def fail() -> None:
    raise ValueError("the user's own")


def from_other() -> None:
    try:
        fail()
    except ValueError as error:
        raise RuntimeError("the last of several\nwith more to it") from error


def in_a_group() -> None:
    try:
        fail()
    except ValueError as error:
        raise ExceptionGroup("unhandled errors in a TaskGroup", [error]) from None


def in_a_library() -> None:
    listing.list_shards(5)  # type: ignore[arg-type]


HERE = __file__


@pytest.mark.parametrize(
    ("function", "error", "frame"),
    [
        (fail, "ValueError: the user's own", "fail"),
        (from_other, "RuntimeError: the last of several", "from_other"),
        (in_a_group, "ValueError: the user's own", "fail"),
        (in_a_library, "AttributeError: ", "in_a_library"),
        (lambda: {}["a b"], "KeyError: 'a b'", "<lambda>"),
        (lambda: sys.exit("no way"), "SystemExit: no way", "<lambda>"),
    ],
)
def test_a_traceback_is_told_by_its_last_error_and_the_users_frame(function, error, frame):
    said = last_words([INFO, *raised(function), WARNING, "--- ended after 1s: exit code 1"])
    assert said.error.startswith(error)
    path, _, place = said.where.partition(":")
    assert path == HERE
    assert place.endswith(f" in {frame}")


def test_a_line_of_the_source_is_no_error():
    text = [
        "Traceback (most recent call last):",
        '  File "/models/model.py", line 7, in custom_model',
        "    MyError(",
        '  File "/models/model.py", line 9, in __init__',
        "    ValueErrors.check(dim)",
        "MemoryError",
    ]
    assert last_words(text) == LastWords("MemoryError", "/models/model.py:9 in __init__")


def test_a_traceback_that_is_cut_off_has_no_error():
    cut = [
        "Traceback (most recent call last):",
        '  File "/models/model.py", line 7, in build',
        "    Embedding(10**6)",
    ]
    assert last_words(cut) == LastWords("", "/models/model.py:7 in build")


def test_a_crash_is_told_with_the_users_frame_of_its_thread():
    crash = [
        INFO,
        "Fatal Python error: Segmentation fault",
        "",
        "Current thread 0x00007f (most recent call first):",
        '  File "/x/lib/python3.11/site-packages/tensorflow/ops.py", line 3081 in iterator_get_next',
        '  File "/models/model.py", line 12 in feed',
        "",
        "Thread 0x00007e (most recent call first):",
        '  File "/models/other.py", line 3 in serve',
    ]
    assert last_words(crash) == LastWords("Segmentation fault", "/models/model.py:12 in feed")


def test_a_crash_that_was_called_for_is_told_with_what_called_for_it():
    crash = [
        "F0000 00:00:1795900253.786654    9731 env.cc:84] Check failed: ret == 0 (11 vs. 0) pthread_create() failed.",
        "*** Check failure stack trace: ***",
        "    @     0x7f3d47b1d314  absl::log_internal::LogMessage::SendToLog()",
        "Fatal Python error: Aborted",
    ]
    assert last_words(crash).error == "Aborted: Check failed: ret == 0 (11 vs. 0) pthread_create() failed."


@pytest.mark.parametrize(
    ("tail", "error"),
    [
        ([INFO], ""),
        ([INFO, WARNING, INFO], "the disk is nearly full"),
        (["I0000 00:00:1795893434.377000   30815 cudart_stub.cc:31] no GPU", INFO], ""),
        (
            ["E0000 00:00:1795893434.377000   30815 a.cc:31] no memory"],
            "E0000 00:00:1795893434.377000   30815 a.cc:31] no memory",
        ),
        (
            ["terminate called after throwing an instance of 'std::bad_alloc'", INFO],
            "terminate called after throwing an instance of 'std::bad_alloc'",
        ),
        (['{"ts": 1.0, "level": "INFO", "event": "well"}'], ""),
        (['{"ts": 1.0, "level": "ERROR", "event": "not well"}'], "not well"),
        (['{"ts": broken'], ""),
        (["[2026-05-04 09:12:04,120] [ERROR] [a.py:1:x] job failed", "  data  train-0"], "job failed"),
        ([WARNING, "Killed"], "Killed"),
    ],
)
def test_what_went_well_is_no_reason(tail, error):
    assert last_words([*tail, "--- ended after 1s: exit code 1"]).error == error
