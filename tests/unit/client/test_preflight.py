"""What is checked before anything runs, and where a model's code is found."""

import dataclasses
import os
import sys
from pathlib import Path

import pytest

from edlz.api.recordio import Writer
from edlz.client.job_files.preflight import check_job
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ModelError
from edlz.services.inputs.model_location import (
    ModelLocation,
    locate_attribute,
    locate_model,
    model_zoo_directory,
    zoo_modules,
)
from edlz.services.inputs.model_symbols import read_symbols

MODEL = """
import tensorflow_that_is_not_there as tf
from elsewhere import optimizer

def custom_model(): ...
def loss(labels, predictions): ...
def feed(dataset, mode, metadata): ...
def eval_metrics_fn(): ...
"""


def write(path: Path, records: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with Writer(path) as writer:
        for number in range(records):
            writer.write(b"%d" % number)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model_zoo/mnist").mkdir(parents=True)
    (tmp_path / "model_zoo/mnist/__init__.py").touch()
    (tmp_path / "model_zoo/mnist/mnist_functional_api.py").write_text(MODEL)
    write(tmp_path / "data/mnist/train/part-0", 2048)
    write(tmp_path / "data/mnist/test/part-0", 100)


def job(**changes: object) -> JobConfig:
    settings = {
        "model_zoo": "model_zoo",
        "model_def": "mnist.mnist_functional_api.custom_model",
        "training_data": "data/mnist/train",
        **changes,
    }
    return JobConfig(**settings)  # type: ignore[arg-type]


def only_error(config: JobConfig) -> tuple[str, str]:
    (problem,) = check_job(config).errors
    return problem.message, problem.help


def test_a_job_that_can_begin() -> None:
    found = check_job(job(validation_data="data/mnist/test"))
    assert (found.errors, found.warnings, found.records, found.tasks) == ([], [], 2048, 4)
    assert "tensorflow_that_is_not_there" not in sys.modules


def test_row_7_module_not_found() -> None:
    assert only_error(job(model_def="mnist.mnist_functional.custom_model")) == (
        "no mnist/mnist_functional.py in model_zoo (for --model_def=mnist.mnist_functional.custom_model)",
        "nearest: mnist.mnist_functional_api.custom_model",
    )


def test_row_8_symbol_missing() -> None:
    path = Path("model_zoo/mnist/mnist_functional_api.py")
    path.write_text(MODEL.replace("def loss(", "def lost("))
    assert only_error(job()) == (
        "mnist.mnist_functional_api defines no loss(labels, predictions)",
        "it defines: custom_model, optimizer, feed, eval_metrics_fn",
    )
    assert only_error(job(loss="lost", model_def="mnist.mnist_functional_api.custom_modl"))[0] == (
        "mnist.mnist_functional_api defines no custom_modl"
    )


def test_a_file_that_is_no_python_is_told_with_the_line() -> None:
    path = Path("model_zoo/mnist/mnist_functional_api.py")
    path.write_text("import os\ndef custom_model(:\n")
    assert only_error(job())[0] == f"{path}:2: invalid syntax: def custom_model(:"


def test_a_function_of_a_module_that_is_nowhere() -> None:
    assert only_error(job(loss="losses_of_mine.focal"))[1] == (
        "--model_zoo=DIR says in which folder it lies; --loss=focal is one of the model's own file"
    )


def test_what_is_no_checkpoint() -> None:
    Path("kept").mkdir()
    advice = "name a checkpoint folder, or one of its version-<V>: edlz checkpoint ls FOLDER"
    assert only_error(job(checkpoint_dir_for_init="kept")) == (
        'checkpoint_dir_for_init "kept" holds no checkpoint',
        advice,
    )
    assert only_error(job(checkpoint_dir_for_init="kep"))[1] == "nearest: kept"
    assert only_error(job(checkpoint_dir_for_init="data/mnist/test/part-0")) == (
        'checkpoint_dir_for_init "data/mnist/test/part-0" is no folder',
        advice,
    )


def test_what_is_left_out_of_the_data_is_warned_of() -> None:
    Path("data/mnist/train/sub").mkdir()
    (warning,) = check_job(job()).warnings
    assert warning.message == 'training_data "data/mnist/train": the folder sub in it is left out'


def test_row_10_path_missing() -> None:
    assert only_error(job(training_data="data/mnits/train")) == (
        'training_data "data/mnits/train" does not exist',
        "nearest: data/mnist/train",
    )


def test_row_11_wrong_format() -> None:
    Path("data/zip").mkdir()
    Path("data/zip/part-0").write_bytes(b"PK\x03\x04" + bytes(100))
    message, help_line = only_error(job(training_data="data/zip"))
    assert message == 'data/zip/part-0 is not RecordIO (starts with "PK": a zip file)'
    assert help_line.startswith("unpack it; of packed files *.csv.gz, ")
    Path("data/zip/part-0").write_text("age,income\n1,2\n")
    message, help_line = only_error(job(training_data="data/zip"))
    assert message == 'data/zip/part-0 is not RecordIO (starts with "age,income": a text file)'
    assert help_line == 'say what it is: --data_reader_params="reader_type=CSV"; see edlz data --help'


def test_data_that_holds_nothing() -> None:
    Path("data/empty").mkdir()
    assert "has no files in it" in only_error(job(training_data="data/empty"))[0]
    Path("data/empty/part-0").touch()
    assert only_error(job(training_data="data/empty"))[0]
    assert "data/mnist/t" in only_error(job(training_data="data/mnist"))[1]


def test_model_and_all_data_are_reported_at_once() -> None:
    config = job(model_def="no.such.thing", training_data="nowhere", validation_data="neither")
    assert [problem.message for problem in check_job(config).errors] == [
        "no no/such.py in model_zoo (for --model_def=no.such.thing)",
        'training_data "nowhere" does not exist',
        'validation_data "neither" does not exist',
    ]


def test_row_14_fewer_tasks_than_workers() -> None:
    found = check_job(job(num_workers=8))
    (warning,) = found.warnings
    assert warning.message == "num_workers=8, but an epoch has 4 tasks: 4 workers would wait"
    assert warning.help == "a smaller --num_minibatches_per_task, or --num_workers=4"
    (warning,) = check_job(job(num_workers=4, records_per_task=2000)).warnings
    assert warning.help == "a smaller --records_per_task, or --num_workers=2"


def test_a_module_that_is_not_python() -> None:
    Path("bad.py").write_text("def custom_model(:\n")
    message, _ = only_error(job(model_def="", model_file="bad.py"))
    assert message.startswith("bad.py:1: ")


def test_the_models_own_reader_is_not_asked() -> None:
    """It would have to be imported; it may also bring the feed."""
    own = MODEL.replace("eval_metrics_fn", "custom_data_reader").replace("def feed", "def other")
    Path("model.py").write_text(own)
    config = job(model_def="", model_file="model.py", training_data="table: of its own")
    found = check_job(config)
    assert (found.errors, found.warnings, found.records) == ([], [], None)
    named = dataclasses.replace(config, data_reader_params="reader_type=RecordIO")
    assert [error.message for error in check_job(named).errors] == [
        "model.py defines no feed(dataset, mode, metadata)",
        'training_data "table: of its own" does not exist',
    ]


def test_older_names_of_the_model_and_its_feed() -> None:
    Path("old.py").write_text(
        "model = build()\ndef loss(): ...\noptimizer = lambda: 0\ndef input_fn(r): ...\n"
    )
    assert check_job(job(model_def="", model_file="old.py")).errors == []
    Path("old.py").write_text("model = build()\nloss = optimizer = 1\n")
    message, _ = only_error(job(model_def="", model_file="old.py"))
    assert "defines no feed(dataset, mode, metadata)" in message


def test_functions_of_other_modules() -> None:
    Path("model_zoo/losses.py").write_text("def huber(labels, predictions): ...\n")
    assert check_job(job(loss="losses.huber")).errors == []
    assert only_error(job(loss="losses.hubr"))[0] == "model_zoo/losses.py defines no hubr"
    message, help_line = only_error(job(loss="loses.huber"))
    assert message == "no loses.py in model_zoo (for --loss=loses.huber)"
    assert help_line == "nearest: losses.huber"


# ---------------------------------------------------------------- locations


def test_dotted_names_lie_in_the_zoo() -> None:
    expected = ModelLocation(Path("model_zoo/mnist/mnist_functional_api.py"), "custom_model")
    assert locate_model(job()) == expected
    assert locate_attribute(job(), "loss", expected) == ModelLocation(expected.path, "loss")


def test_the_installed_zoo_is_the_default() -> None:
    zoo = model_zoo_directory(job(model_zoo=""))
    assert zoo.name == "model_zoo"
    assert "mnist.mnist_functional_api" in zoo_modules(zoo)
    assert locate_model(job(model_zoo="")).path == zoo / "mnist" / "mnist_functional_api.py"


def test_a_directory_means_the_module_of_its_name() -> None:
    Path("examples/net").mkdir(parents=True)
    with pytest.raises(ModelError, match=r"no net\.py in examples/net"):
        locate_model(job(model_def="examples/net"))
    Path("examples/net/net.py").touch()
    assert locate_model(job(model_def="examples/net")) == ModelLocation(Path("examples/net/net.py"), None)
    assert locate_model(job(model_def="examples/net/")).path == Path("examples/net/net.py")
    assert locate_model(job(model_def="examples/net/net.py")).path == Path("examples/net/net.py")


def test_a_module_beside_the_name() -> None:
    Path("examples").mkdir()
    Path("examples/mnist_subclass.py").touch()
    assert locate_model(job(model_def="examples/mnist_subclass")) == ModelLocation(
        Path("examples/mnist_subclass.py"), None
    )
    with pytest.raises(ModelError) as raised:
        locate_model(job(model_def="examples/mnist_subclas"))
    assert raised.value.help == "nearest: examples/mnist_subclass.py"


@pytest.mark.parametrize("name", ["custom_model", "mnist-x.y.z", "mnist..x"])
def test_names_that_are_neither(name: str) -> None:
    with pytest.raises(ModelError):
        locate_model(job(model_def=name))


def test_a_forgotten_symbol() -> None:
    with pytest.raises(ModelError) as raised:
        locate_model(job(model_def="mnist.mnist_functional_api"))
    assert raised.value.help == "nearest: mnist.mnist_functional_api.custom_model"


def test_files_and_zoos_that_are_not_there() -> None:
    with pytest.raises(ModelError, match=r'--model_file="nope.py" does not exist'):
        locate_model(job(model_def="", model_file="nope.py"))
    Path("models").mkdir()
    with pytest.raises(ModelError, match=r'--model_file="models" is a folder') as refused:
        locate_model(job(model_def="", model_file="models"))
    assert refused.value.help == "name a file in it"
    Path("models/a.py").touch()
    with pytest.raises(ModelError) as refused:
        locate_model(job(model_def="", model_file="models"))
    assert refused.value.help == "name a file in it: --model_file=models/a.py"
    with pytest.raises(ModelError, match=r'--model_zoo="model_zo" is no directory') as raised:
        locate_model(job(model_zoo="model_zo"))
    assert raised.value.help == "nearest: model_zoo"


def test_names_that_a_syntax_tree_shows(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(
        "import a.b, c as d\n"
        "from e import f, g as h\n"
        "i: int = 1\n"
        "j: int\n"
        "k, (l, m) = 1, (2, 3)\n"
        "if i:\n    def n(): ...\nelse:\n    class o: ...\n"
        "try:\n    import p\nexcept ImportError:\n    p = q = None\n"
        "with x() as y:\n    r = 1\n"
    )
    symbols = read_symbols(path)
    assert set(symbols.names) == set("adfhiklmnopqr")
    assert "z" not in symbols
    path.write_text("from e import *\n")
    assert "anything" in read_symbols(path)


def test_a_checkpoint_to_begin_from(tmp_path: Path) -> None:
    message, _ = only_error(job(checkpoint_dir_for_init="nowhere"))
    assert message == 'checkpoint_dir_for_init "nowhere" does not exist'
    (tmp_path / "version-3").mkdir()
    message, _ = only_error(job(checkpoint_dir_for_init=str(tmp_path / "version-3")))
    assert message.endswith("holds no good checkpoint")
    message, _ = only_error(job(checkpoint_dir_for_init=str(tmp_path / "version-3" / "..")))
    assert message.endswith("holds no good checkpoint")
    (tmp_path / "empty").mkdir()
    message, help_line = only_error(job(checkpoint_dir_for_init=str(tmp_path / "empty")))
    assert message.endswith("holds no checkpoint")
    assert "version-<V>" in help_line


def test_a_place_that_the_model_can_be_exported_to() -> None:
    for output in ("out/model", "data", "out/m.keras", "m.keras"):
        assert check_job(job(output=output)).errors == []
    assert not Path("out").exists(), "nothing is made before there is a model"


def test_a_place_that_nothing_can_be_exported_to(tmp_path: Path) -> None:
    part = tmp_path / "data/mnist/test/part-0"
    Path("taken.keras").mkdir()
    assert only_error(job(output="data/mnist/test/part-0/out")) == (
        f'output "data/mnist/test/part-0/out": {part} is no folder',
        "name another place to export to",
    )
    assert only_error(job(output="taken.keras"))[0] == 'output "taken.keras" is a folder'


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_place_that_another_user_has(tmp_path: Path) -> None:
    Path("theirs").mkdir(mode=0o500)
    message = f'output "theirs/out": {tmp_path / "theirs"} cannot be written to by this user'
    assert only_error(job(output="theirs/out"))[0] == message


def test_data_that_grows_is_looked_at_when_a_job_begins_and_not_when_it_goes_on() -> None:
    Path("inbox").mkdir()
    config = job(training_data="inbox", watch_data=True)
    (problem,) = check_job(config).errors
    assert "no files in it yet" in problem.message
    assert check_job(config, begins=False).errors == []
