"""What a terminal can do, and text that is fitted to it."""

import io
import sys

import pytest

from edlz.client.help.pages import COMMANDS
from edlz.client.screen.columns import aligned, wrapped
from edlz.client.screen.spans import ASCII, UNICODE, Span, plain
from edlz.client.screen.terminal import display_for, glyphs_for, has_colour, left_the_view, print_text
from edlz.services.configuration.problems import Problem, print_problems
from tests.shown_jobs import Terminal


def test_progress_is_live_only_where_it_can_be_redrawn() -> None:
    assert display_for("auto", Terminal(), {}) == "live"
    assert display_for("auto", io.StringIO(), {}) == "plain"
    assert display_for("auto", Terminal(), {"CI": "true"}) == "plain"
    assert display_for("auto", Terminal(), {"TTY_INTERACTIVE": "0"}) == "plain"
    assert display_for("auto", Terminal(), {"TERM": "dumb"}) == "plain"
    assert display_for("live", Terminal(), {"CI": "true"}) == "live"
    assert display_for("live", io.StringIO(), {"FORCE_COLOR": "1"}) == "plain"
    words = ["plain", "quiet", "json"]
    assert [display_for(word, Terminal(), {}) for word in words] == words


def test_no_color_wins() -> None:
    assert has_colour(Terminal(), {})
    assert not has_colour(Terminal(), {"NO_COLOR": "1", "FORCE_COLOR": "1"})
    assert has_colour(Terminal(), {"NO_COLOR": ""})
    assert not has_colour(io.StringIO(), {})
    assert has_colour(io.StringIO(), {"FORCE_COLOR": "1"})


@pytest.mark.parametrize(("encoding", "is_unicode"), [("utf-8", True), ("ascii", False), ("latin-1", False)])
def test_letters_follow_the_encoding(encoding: str, is_unicode: bool) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    assert glyphs_for(stream) == (UNICODE if is_unicode else ASCII)


LONG = [
    [Span("error: ", "bad"), Span("the loss of the first minibatches is nan, before anything")],
    [Span("           4 | "), Span("def loss(labels, predictions): return 0 * predictions")],
    [Span("help: ", "bold"), Span("every parameter would become NaN: look for log(0), 0/0")],
]


def test_text_is_fitted_to_a_terminal_and_left_alone_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    shown, piped = Terminal(), io.StringIO()
    print_text(LONG, shown)
    print_text(LONG, piped)
    assert shown.getvalue().splitlines() == [
        "error: the loss of the first minibatches",
        "       is nan, before anything",
        "           4 | def loss(labels, predi...",
        "help: every parameter would become NaN:",
        "      look for log(0), 0/0",
    ]
    assert piped.getvalue() == plain(LONG)


def test_whoever_leaves_a_view_can_read_how_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stderr", Terminal())
    name = "mnist-functional-api-evaluate -n research"
    left_the_view(name, f"edlz logs -f {name}")
    text = sys.stderr.getvalue()  # type: ignore[attr-defined]
    for command in (f"edlz logs -f {name}", f"edlz stop {name}"):
        assert any(command in line for line in text.splitlines())
    assert max(map(len, text.splitlines())) <= 80


def test_prose_about_edlz_is_no_command() -> None:
    text = (
        "the model is compiled, but edlz would ignore what its compile() sets: optimizer, loss, metrics, jit"
    )
    lines = wrapped([[Span("error: ", "bad"), Span(text)]], 80)
    assert max(map(len, plain(lines).splitlines())) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_is_broken_where_it_is_offered(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    typed = f"edlz {command} {'a' * 15} {'b' * 15}"
    told = Terminal()
    print_problems([Problem("x", f"correct it, and then, at last: {typed}")], stream=told)
    lines = wrapped([[Span("help: ", "bold"), Span(f"correct it, and then, at last: {typed}")]], 40)
    assert told.getvalue().splitlines()[-1].strip() == typed
    assert plain(lines).splitlines()[-1].strip() == typed


def test_what_stands_behind_a_command_goes_on_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    told = Terminal()
    name = "mnist-functional-api-evaluate"
    advice = f"edlz resume {name}; or begin anew: --fresh (its files are moved aside)"
    print_problems([Problem("x", advice)], stream=told)
    lines = wrapped([[Span("help: ", "bold"), Span(advice)]], 80)
    for text in (told.getvalue().removeprefix("error: x\n"), plain(lines)):
        assert text.splitlines() == [
            f"help: edlz resume {name}; or begin anew: --fresh (its",
            "      files are moved aside)",
        ]


@pytest.mark.parametrize("columns", [80, 120])
def test_an_error_goes_on_below_itself(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    terminal = Terminal()
    message = "num_workers=8 exceeds " + "and so on " * 20 + "max_workers=4"
    print_problems([Problem(message, "--num_workers=4 " * 12)], stream=terminal)
    text = terminal.getvalue()
    lines, help_lines = text[: text.index("help:")].splitlines(), text[text.index("help:") :].splitlines()
    assert lines[0].startswith("error: num_workers=8 exceeds and")
    assert all(len(line) <= columns for line in (*lines, *help_lines))
    assert all(line.startswith(" " * 7) and line[7] != " " for line in lines[1:])
    assert help_lines[0].startswith("help: --num_workers=4 --num_workers=4")
    assert all(line.startswith(" " * 6) and line[6] != " " for line in help_lines[1:])
    pipe = io.StringIO()
    print_problems([Problem(message)], stream=pipe)
    assert pipe.getvalue() == f"error: {message}\n"


def test_the_last_cell_of_a_row_goes_on_below_itself() -> None:
    cells = ["warn", "checkpoints", "checkpoint_dir lies on no volume: it is lost with the pod"]
    _, *rows = aligned(["", "", ""], [["ok", "cluster", "reachable"], cells])
    assert plain(wrapped([[Span("  "), *row] for row in rows], 60)).splitlines() == [
        "  ok    cluster      reachable",
        "  warn  checkpoints  checkpoint_dir lies on no volume: it is",
        "                     lost with the pod",
    ]
