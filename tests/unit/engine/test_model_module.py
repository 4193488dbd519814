"""The model contract in all its spellings, optimizers, and how errors in the user's code are told."""

import importlib.util
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ModelError
from edlz.services.worker.engine.contract.loss_function import LossFunction
from edlz.services.worker.engine.contract.model_file import load_file
from edlz.services.worker.engine.contract.model_module import load_contract
from edlz.services.worker.engine.contract.optimizer import accept_older_spellings
from edlz.services.worker.engine.model.keras_model import start_from
from edlz.services.worker.engine.tensorflow.backend import keras, tf
from edlz.services.worker.engine.user_code.user_code import UserCode, UserCodeError, brief, exit_error
from tests.rounding import near

MODEL = """
import keras
import tensorflow as tf

def custom_model(units=3, name="plain"):
    inputs = keras.Input((2,))
    return keras.Model(inputs, keras.layers.Dense(units)(inputs), name=name)

def loss(labels, predictions):
    return tf.reduce_mean(tf.square(predictions - labels))

def optimizer(lr=0.1):
    return keras.optimizers.SGD(lr)

def feed(dataset, mode, metadata):
    return dataset
"""


@pytest.fixture(autouse=True)
def _import_path():
    """What a test's modules leave behind is no other test's business."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if "site-packages" not in str(getattr(sys.modules[name], "__file__", "site-packages")):
            del sys.modules[name]


def write(folder: Path, files: dict[str, str]) -> None:
    for name, source in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))


def load(folder: Path, source: str = MODEL, *, more: dict[str, str] | None = None, **flags):
    """The contract of zoo/ctr/deep.py with this source."""
    write(folder / "zoo", {"ctr/deep.py": source, **(more or {})})
    flags = {"model_zoo": str(folder / "zoo"), "model_def": "ctr.deep.custom_model", **flags}
    return load_contract(JobConfig(**flags))


def without(*names: str) -> str:
    """The model's source with these definitions left out."""
    parts = MODEL.split("\n\n")
    return "\n\n".join(p for p in parts if not any(p.strip().startswith(f"def {n}(") for n in names))


# ---------------------------------------------------------------- spellings of the model


def test_a_function_builds_the_model_with_model_params(tmp_path):
    contract = load(tmp_path, model_params="units=5;name='wide'")
    model = contract.build()
    assert model.output_shape == (None, 5)
    assert model.name == "wide"
    assert contract.name == "ctr.deep"


def test_a_class_is_made_with_model_params(tmp_path):
    source = without("custom_model") + textwrap.dedent(
        """
        class CustomModel(keras.Model):
            def __init__(self, units=1):
                super().__init__()
                self.units = units
        """
    )
    model = load(tmp_path, source, model_def="ctr.deep.CustomModel", model_params="units=7").build()
    assert model.units == 7


def test_the_optimizer_gets_the_params_that_it_names(tmp_path):
    source = without("optimizer") + "\n\ndef optimizer(rate=1.0):\n    return keras.optimizers.SGD(rate)\n"
    contract = load(tmp_path, source, model_params="units=5;rate=0.25")
    assert contract.build().output_shape == (None, 5)
    assert float(contract.make_optimizer().learning_rate) == 0.25


def test_a_model_in_the_module_is_taken_as_it_is_and_starts_from_the_seed(tmp_path):
    source = MODEL.replace("def custom_model(", "def make(") + "\nmodel = make()\n"
    write(tmp_path, {"old.py": source})
    values = []
    for _ in range(2):
        start_from(4)
        model = load_contract(JobConfig(model_file=str(tmp_path / "old.py"))).build()
        values.append(model.get_weights()[0])
    assert np.array_equal(*values)


def test_what_is_no_model_is_named(tmp_path):
    contract = load(tmp_path, MODEL + "\ndef custom_model():\n    return 3\n")
    with pytest.raises(ModelError, match=r"custom_model\(\) returned int, not a keras.Model"):
        contract.build()


# ---------------------------------------------------------------- missing names


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("loss", "loss(labels, predictions)"),
        ("optimizer", "optimizer()"),
        ("feed", "feed(dataset, mode, metadata)"),
        ("custom_model", "custom_model()"),
    ],
)
def test_a_missing_name_is_told_with_those_there_are(tmp_path, name, signature):
    with pytest.raises(ModelError) as error:
        load(tmp_path, without(name))
    assert error.value.message == f"ctr.deep defines no {signature}"
    others = [n for n in ("custom_model", "loss", "optimizer", "feed") if n != name]
    assert error.value.help == f"it defines: {', '.join(others)}"


def test_a_flag_names_another_function_or_one_of_another_module(tmp_path):
    contract = load(
        tmp_path,
        MODEL + "\ndef parse(dataset, mode):\n    return (dataset, mode)\n",
        more={"losses.py": "def hinge(labels, predictions):\n    return 7.0\n"},
        feed="parse",
        loss="losses.hinge",
    )
    assert contract.feed("d", "m", None) == ("d", "m")
    assert float(contract.loss(1.0, 2.0)) == 7.0


def test_a_dotted_name_that_is_not_there(tmp_path):
    with pytest.raises(ModelError, match=r"losses defines no hinge \(for --loss=losses.hinge\)"):
        load(tmp_path, more={"losses.py": ""}, loss="losses.hinge")


# ---------------------------------------------------------------- feed


@pytest.mark.parametrize(
    ("source", "form"),
    [
        ("def feed(dataset, mode, metadata): return dataset", "dataset"),
        ("def dataset_fn(dataset, mode): return dataset", "dataset"),
        ("def dataset_fn(dataset, mode, metadata): return dataset", "dataset"),
        ("def input_fn(records): return records", "records"),
    ],
)
def test_the_forms_of_feed(tmp_path, source, form):
    contract = load(tmp_path, without("feed") + "\n" + source + "\n")
    assert contract.feed_form == form
    arguments = ("data", "training", None) if form == "dataset" else ("data",)
    assert contract.feed(*arguments) == "data"


# ---------------------------------------------------------------- loss


LABELS, PREDICTIONS = np.float32([[1.0], [2.0]]), np.float32([[4.0], [4.0]])


@pytest.mark.parametrize(
    "function",
    [
        lambda labels, predictions: tf.reduce_mean(labels - predictions),
        lambda output, labels: tf.reduce_mean(labels - output),
        lambda predictions, labels: tf.reduce_mean(labels - predictions),
        lambda y_true, y_pred: tf.reduce_mean(y_true - y_pred),
        lambda y_pred, y: tf.reduce_mean(y - y_pred),
        lambda first, second: tf.reduce_mean(first - second),
        lambda labels, predictions: (labels - predictions)[:, 0],  # a value per row is averaged
    ],
)
def test_losses_in_both_orders_of_parameters(function):
    assert float(LossFunction(function)(LABELS, PREDICTIONS)) == near(-2.5, 10)


@pytest.mark.parametrize(
    "function",
    [keras.losses.MeanSquaredError(), keras.losses.MeanSquaredError, keras.losses.mean_squared_error],
)
def test_losses_of_keras(function):
    assert float(LossFunction(function)(LABELS, PREDICTIONS)) == near(6.5, 10)


def test_sample_weights_reach_a_loss_that_takes_them():
    weights = np.float32([1.0, 0.0])
    assert float(LossFunction(keras.losses.MeanSquaredError())(LABELS, PREDICTIONS, weights)) == 4.5
    own = LossFunction(lambda labels, predictions, sample_weight: sample_weight * 3.0)
    assert float(own(LABELS, PREDICTIONS, weights)) == 1.5
    with pytest.raises(ModelError, match=r"loss\(labels, predictions\) takes none"):
        LossFunction(lambda labels, predictions: 1.0)(LABELS, PREDICTIONS, weights)


# ---------------------------------------------------------------- importing


def test_siblings_are_importable_from_everywhere_in_the_zoo(tmp_path):
    more = {
        "ctr/columns.py": "WIDTH = 11\n",
        "ctr/__init__.py": "",
        "shared_parts.py": "RATE = 0.5\n",
    }
    source = (
        "import columns\nfrom shared_parts import RATE\nfrom zoo.ctr.columns import WIDTH\n"
        "from .columns import WIDTH as again\n"
        + MODEL
        + "\ndef custom_model():\n"
        + "    assert columns.WIDTH == WIDTH == again and RATE == 0.5\n"
        + "    return keras.Sequential([keras.Input((1,)), keras.layers.Dense(WIDTH)])\n"
    )
    assert load(tmp_path, source, more=more).build().output_shape == (None, 11)


def test_a_sibling_that_imports_the_model_gets_the_same_module(tmp_path):
    more = {"ctr/__init__.py": "", "ctr/user.py": "import ctr.deep\nMODULE = ctr.deep\n"}
    source = MODEL + "\nmarks = []\nimport ctr.user\nctr.user.MODULE.marks.append(1)\nassert marks == [1]\n"
    load(tmp_path, source, more=more)


def test_a_module_named_like_a_package_hides_nothing(tmp_path):
    write(tmp_path, {"symtable.py": "raise AssertionError", "json.py": MODEL})
    sys.modules.pop("symtable", None)
    contract = load_contract(JobConfig(model_file=str(tmp_path / "json.py")))
    import json
    import symtable

    assert json.loads("[1]") == [1]
    assert str(tmp_path) not in symtable.__file__
    assert contract.build().output_shape == (None, 3)
    assert sys.modules["json"] is json


def test_a_package_that_is_not_installed(tmp_path):
    with pytest.raises(UserCodeError) as error:
        load(tmp_path, MODEL + "\nimport no_such_package.inner\n")
    assert error.value.message.startswith(f"{tmp_path}/zoo/ctr/deep.py:18: no module named")
    assert error.value.help.startswith("pip install no_such_package;")


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("import sklearn.svm", "pip install scikit-learn; for the image"),
        (
            "import keras.no_such_part",
            f"keras {keras.__version__} has no keras.no_such_part: another version",
        ),
        ("import my_parts", "parts/my_parts.py is not where Python looks: move it beside the model's file"),
    ],
)
def test_what_to_do_about_a_missing_module(tmp_path, monkeypatch, line, advice):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zoo" / "parts").mkdir(parents=True)
    (tmp_path / "zoo" / "parts" / "my_parts.py").write_text("")
    with pytest.raises(UserCodeError) as error:
        load(tmp_path, MODEL + f"\n{line}\n")
    assert error.value.help.removeprefix("zoo/").startswith(advice)


def test_a_module_that_is_missing_only_when_it_is_used(tmp_path):
    contract = load(tmp_path, MODEL + "\ndef optimizer():\n    import no_such_package\n")
    with pytest.raises(UserCodeError) as error:
        contract.make_optimizer()
    assert error.value.message.startswith(f'{tmp_path}/zoo/ctr/deep.py:19: no module named "no_such_package"')
    assert error.value.help.startswith("pip install no_such_package;")


def test_a_module_that_does_not_run_leaves_nothing_behind(tmp_path):
    with pytest.raises(UserCodeError, match="NameError: name 'nothing' is not defined") as error:
        load(tmp_path, MODEL + "\nnothing\n")
    assert "deep.py:18 in <module>" in error.value.where
    assert not any(name.endswith("deep") for name in sys.modules if "ctr" in name or "edlz_" in name)


@pytest.mark.parametrize(
    ("lines", "line", "asked", "advice"),
    [
        ("import sys\nsys.exit(3)", 19, r"called sys.exit(3) (", "leave that to `if __name__"),
        (
            "import argparse\nparser = argparse.ArgumentParser(prog='x')\nparser.parse_args(['--odd'])",
            20,
            "called sys.exit(2), by argparse (",
            "leave that to `if __name__",
        ),
        ("def optimizer():\n    raise SystemExit", 19, "called sys.exit() (", "raise an error there"),
    ],
)
def test_an_exit_has_its_line(tmp_path, lines, line, asked, advice):
    with pytest.raises(SystemExit) as end:
        load(tmp_path, f"{MODEL}\n{lines}\n").make_optimizer()
    error = exit_error(end.value)
    assert error.where.startswith(f"{tmp_path}/zoo/ctr/deep.py:{line} in ")
    assert asked in error.message
    assert error.source == (tmp_path / "zoo/ctr/deep.py").read_text().splitlines()[line - 1]
    assert advice in error.help


def test_an_exit_in_code_that_autograph_translates_has_its_function(tmp_path):
    (tmp_path / "leaving.py").write_text("import sys\n\ndef feed(dataset):\n    sys.exit(0)\n")
    spec = importlib.util.spec_from_file_location("leaving", tmp_path / "leaving.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(SystemExit) as end:
        tf.function(module.feed)(1)
    error = exit_error(end.value.with_traceback(end.tb.tb_next))  # this file is no library either
    assert error.message == "the model's code called sys.exit(0) in feed()"
    assert error.help == "raise an error there that says what is wrong"


def test_a_syntax_error_has_its_line(tmp_path):
    with pytest.raises(UserCodeError, match="SyntaxError") as error:
        load(tmp_path, MODEL + "\ndef broken(:\n")
    assert error.value.where.endswith("deep.py:18")


# ---------------------------------------------------------------- errors in the user's code


def test_the_innermost_frame_of_the_users_own_is_named(tmp_path):
    more = {"ctr/blocks.py": "import keras\n\ndef block():\n    return keras.layers.Dense(-1)\n"}
    source = MODEL + "\nimport blocks\n\ndef custom_model():\n    return blocks.block()\n"
    contract = load(tmp_path, source, more=more)
    with pytest.raises(UserCodeError) as error:
        contract.build()
    assert error.value.where == f"{tmp_path}/zoo/ctr/blocks.py:4 in block"
    assert error.value.message.startswith("custom_model() raised ValueError: ")
    assert error.value.message.endswith(f"({error.value.where})")
    assert "Traceback" in error.value.traceback


def test_a_frame_inside_a_traced_function_is_the_users_line(tmp_path):
    source = MODEL + textwrap.dedent(
        """
        def loss(labels, predictions):
            if tf.reduce_sum(labels) > 0:
                labels.nothing()
            return 1.0
        """
    )
    contract = load(tmp_path, source)

    @tf.function
    def traced(labels):
        with contract.code.running("loss()"):
            return contract.loss(labels, labels)

    with pytest.raises(UserCodeError, match=r"loss\(\) raised AttributeError: .*nothing") as error:
        traced(tf.constant([1.0]))
    assert error.value.where.endswith("deep.py:20 in loss")


def test_frames_of_installed_packages_are_not_the_users(tmp_path):
    write(tmp_path, {".venv/site-packages/other.py": "def fail():\n    raise KeyError('x')\n"})
    path = tmp_path / ".venv" / "site-packages" / "other.py"
    other = load_file(path, None, UserCode(tmp_path))
    with pytest.raises(UserCodeError) as error, UserCode(tmp_path).running("it"):
        other.fail()
    assert error.value.where == ""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain", "plain"),
        ("", "no message"),
        ("first\nsecond", "first"),
        ('in user code:\n\n    File "x.py", line 2, in loss  *\n\n    ValueError: bad shape\n', "bad shape"),
        (
            "{{function_node __wrapped__X}} Error in user-defined function passed to MapDataset:1952 "
            "transformation with iterator: Iterator::Root::Map: Label 11 is not valid\n"
            "\t [[{{node a/b}}]] [Op:IteratorGetNext] name: ",
            "Label 11 is not valid",
        ),
        (
            'Graph execution error:\n\nDetected at node a defined at\n\nFile "x.py"\n\n'
            "indices[3] = 12 is not in [0, 10)\n\t [[{{node x}}]] [Op:__inference_run_12]",
            "indices[3] = 12 is not in [0, 10)",
        ),
        (
            "Exception encountered when calling A.call().\n\n\x1b[1mbad shape\x1b[0m\n\n"
            "Arguments received by A.call():\n  x=1",
            "bad shape",
        ),
    ],
)
def test_the_line_that_says_what_is_wrong(text, line):
    assert brief(ValueError(text)) == line


# ---------------------------------------------------------------- optimizers


def test_older_spellings_of_the_learning_rate():
    accept_older_spellings()
    accept_older_spellings()  # wraps once
    assert float(tf.keras.optimizers.SGD(lr=0.5).learning_rate) == 0.5
    assert float(keras.optimizers.Adam(lr=1).learning_rate) == 1.0
    assert float(keras.optimizers.SGD(1).learning_rate) == 1.0
    optimizer = keras.optimizers.SGD(learning_rate=np.float32(0.25))
    optimizer.lr = 0.75
    assert float(optimizer.learning_rate) == float(optimizer.lr) == 0.75
