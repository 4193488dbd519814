"""What a Docker daemon says, made into lines and into the block that is redrawn."""

import io

import pytest

from edlz.client.images.daemon import ImageError, Record
from edlz.client.images.progress import Happening, Progress
from edlz.client.images.views import LiveView, PlainView, QuietView, follow, live_lines, view_for
from edlz.client.screen.spans import plain

BUILD: list[Record] = [
    {"stream": "Step 1/2 : FROM edlz\n"},
    {"stream": " ---> 4654ea4242fa\n"},
    {"stream": "Step 2/2 : RUN pip install x\n"},
    {"stream": "Collec"},
    {"stream": "ting x\n  10%\r 100%\r\n"},
    {"stream": "\x1b[91mWARNING: old\x1b[0m\n"},
    {"aux": {"ID": "sha256:1"}},
]
PUSH: list[Record] = [
    {"status": "The push refers to repository [reg/edlz]"},
    {"status": "Preparing", "progressDetail": {}, "id": "a1"},
    {"status": "Pushing", "progressDetail": {"current": 500_000, "total": 2_000_000}, "id": "a1"},
    {"status": "Layer already exists", "progressDetail": {}, "id": "b2"},
]


def happenings(records: list[Record]) -> tuple[list[Happening], Progress]:
    progress = Progress()
    return [found for record in records for found in progress.feed(record)], progress


def test_steps_and_their_output_are_told_and_the_builders_own_words_are_not() -> None:
    found, progress = happenings(BUILD)
    assert found == [
        Happening("step", "1/2  FROM edlz"),
        Happening("step", "2/2  RUN pip install x"),
        Happening("output", "Collecting x"),
        Happening("output", " 100%"),
        Happening("output", "WARNING: old"),
    ]
    assert list(progress.tail) == ["Collecting x", " 100%", "WARNING: old"]


def test_layers_are_told_when_they_have_arrived_and_counted_on_the_way() -> None:
    found, progress = happenings(PUSH)
    assert [each.text for each in found] == [
        "The push refers to repository [reg/edlz]",
        "b2: Layer already exists",
    ]
    assert plain(live_lines(progress, 3.0)) == "    1 of 2 layers, 500.0 KB of 2.0 MB\n"
    list(progress.feed({"status": "Pushed", "progressDetail": {}, "id": "a1"}))
    assert plain(live_lines(progress, 3.0)) == "    2 of 2 layers, 2.0 MB of 2.0 MB\n"


def test_the_block_has_the_running_step_and_its_last_lines() -> None:
    _, progress = happenings(BUILD)
    assert plain(live_lines(progress, 12.4)).splitlines() == [
        "  2/2  RUN pip install x  12s",
        "    Collecting x",
        "     100%",
        "    WARNING: old",
    ]


@pytest.mark.parametrize(
    ("told", "advice"),
    [
        ("exec /bin/sh: exec format error", "--platform=linux/amd64"),
        ("denied: requested access to the resource is denied", "docker login"),
        ("write /x: no space left on device", "docker system prune"),
        ("something else", ""),
    ],
)
def test_a_failure_names_the_step_its_last_lines_and_what_to_do(told: str, advice: str) -> None:
    _, progress = happenings(BUILD)
    with pytest.raises(ImageError) as caught:
        list(progress.feed({"error": told, "errorDetail": {"message": told}}))
    assert caught.value.message == (
        f"step 2/2  RUN pip install x failed: {told}\n  Collecting x\n   100%\n  WARNING: old"
    )
    assert advice in caught.value.help
    assert bool(advice) == bool(caught.value.help)


def test_only_the_last_lines_of_a_long_output_are_kept() -> None:
    progress = Progress()
    for i in range(100):
        list(progress.feed({"stream": f"line {i}\n"}))
    assert progress.tail[-1] == "line 99"
    assert len(progress.tail) == 12


def test_in_a_pipe_there_are_lines_only() -> None:
    out = io.StringIO()
    follow("Building x", [*BUILD, *PUSH], PlainView(out))
    assert "\r" not in out.getvalue()
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().startswith(
        "Building x\nstep 1/2  FROM edlz\nstep 2/2  RUN pip install x\n  Collecting x\n"
    )


def test_on_a_terminal_steps_that_are_done_stand_above_the_block() -> None:
    out = io.StringIO()
    view = view_for("live", out, is_coloured=False)
    assert isinstance(view, LiveView)
    follow("Building x", BUILD, view)
    text = out.getvalue()
    assert "1/2  FROM edlz  0.0s" in text
    assert "2/2  RUN pip install x  0." in text
    assert text.startswith("Building x\n")


def test_a_failing_build_takes_the_block_away() -> None:
    out = io.StringIO()
    with pytest.raises(ImageError):
        follow("Building x", [*BUILD, {"error": "boom"}], LiveView(out, is_coloured=True))
    assert "\x1b[?25h" in out.getvalue()  # the cursor is shown again
    assert isinstance(view_for("json", out, is_coloured=False), QuietView)
