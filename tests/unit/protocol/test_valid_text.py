"""Text that is no valid Unicode: in errors, in names of files, in flags, in what TensorFlow is told."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edlz.api.recordio import Writer
from edlz.client.local.run import run_local
from edlz.services.configuration.arguments import read_config
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError, DataError, ModelError
from edlz.services.inputs.listing import list_shards
from edlz.services.protocol.messages import ErrorReply
from edlz.services.transport.codec import Codec
from edlz.services.valid_text import is_valid_text, valid_text
from edlz.services.worker.engine.user_code.user_code import UserCode, brief
from tests.command_logging import logging_restored

CAFE = os.fsdecode(b"caf\xe9.jpg")

any_text = st.text(st.characters(codec=None, categories=None), max_size=8)


@given(any_text)
def test_what_is_valid_stays_and_what_is_not_becomes_so(text):
    assert is_valid_text(valid_text(text))
    assert (valid_text(text) == text) == is_valid_text(text)


def test_a_byte_is_shown_as_that_byte():
    assert valid_text(CAFE) == r"caf\xe9.jpg"
    assert valid_text("\ud83d!") == r"\ud83d!"


def test_an_error_that_cites_such_a_name_can_be_sent():
    error = ModelError(f"no {CAFE}", f"mv {CAFE} b")
    frames = Codec("answers").encode(ErrorReply(code=error.code, message=error.message, help=error.help), 1)
    assert Codec("answers").decode(frames)[1].message == r"no caf\xe9.jpg"


def test_the_users_error_comes_through(tmp_path):
    def load():
        raise ValueError(f"cannot open {CAFE}")

    code = UserCode(tmp_path)
    with pytest.raises(ValueError) as raised:
        load()
    task_error = code.task_error(3, 0, raised.value)
    assert task_error.error == r"ValueError: cannot open caf\xe9.jpg"
    assert is_valid_text(task_error.traceback)


def test_an_error_whose_text_raises():
    class OddError(Exception):
        def __str__(self):
            raise KeyError("x")

    assert brief(OddError()) == "(its text raises KeyError)"


def test_a_data_file_of_such_a_name_is_refused_with_the_command_that_renames_it(tmp_path):
    (tmp_path / CAFE).write_bytes(b"")
    with pytest.raises(DataError) as error:
        list_shards(str(tmp_path))
    assert error.value.message == (
        rf"{tmp_path}/caf\xe9.jpg has a name that is not UTF-8, and cannot be told to other processes"
    )
    assert error.value.help == rf"rename it: mv $'{tmp_path}/caf\xe9.jpg' …"


def test_a_flag_of_such_a_value_is_refused(tmp_path):
    (tmp_path / "job.yaml").write_text('model_zoo: "a\\0b"\n')
    argv = [f"--training_data={CAFE}", f"--config={tmp_path}/job.yaml", "--model_def=a.b"]
    messages = [problem.message for problem in read_config(argv, "train", {}).errors]
    assert messages == [
        r'--training_data="caf\xe9.jpg" is not UTF-8, and cannot be told to other processes',
        rf'--model_zoo="a\0b" ({tmp_path}/job.yaml:1) holds a NUL',
    ]


@pytest.mark.parametrize("where", ["here", "home"])
def test_a_job_in_a_folder_of_such_a_name_is_refused(tmp_path, monkeypatch, where):
    odd = tmp_path / CAFE
    odd.mkdir()
    if where == "here":
        monkeypatch.chdir(odd)
    else:
        monkeypatch.setenv("EDLZ_HOME", str(odd))
    with (
        logging_restored(),
        pytest.raises(ConfigError, match=r"/caf\\xe9\.jpg.* has a name that is not UTF-8"),
    ):
        run_local(JobConfig(model_file="model.py", training_data="train", job_name="x", progress="quiet"))
    assert not list(odd.iterdir())


def test_whole_names_are_taken_as_they_are(tmp_path):
    with Writer(tmp_path / "café-1") as writer:
        writer.write(b"x")
    assert [shard.count for shard in list_shards(str(tmp_path))] == [1]
