"""Which reader reads what: names of files, parameters, patterns, and that nothing has changed since the job was planned."""

import dataclasses
from pathlib import Path

import msgspec
import pytest

from edlz.api.recordio import Writer
from edlz.services.errors import ConfigError, DataError
from edlz.services.inputs.data import RecordSource
from edlz.services.inputs.known_formats import format_of_files, known_formats
from edlz.services.inputs.listing import list_data
from edlz.services.inputs.reading.params import parse_params
from edlz.services.protocol.plan import Plan, TaskRange
from tests import builders


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, count: int, letter: bytes = b"x") -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    with Writer(name) as writer:
        for i in range(count):
            writer.write(letter * (i + 1))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {}),
        ("reader_type=CSV", {"reader_type": "CSV"}),
        ("sep=,;columns=['a', 'b']", {"sep": ",", "columns": ["a", "b"]}),
        ("sep=;;header=no", {"sep": ";", "header": "no"}),
        ("columns=a", {"columns": "a"}),
        ("sep=;", {"sep": ";"}),
        ('quote=";sep=|', {"quote": '"', "sep": "|"}),
        (r"sep='\t'", {"sep": "\t"}),
        ("n=5;rate=0.5;x=None", {"n": 5, "rate": 0.5, "x": None}),
        ("text='a;b'", {"text": "a;b"}),
    ],
)
def test_parameters(text, wanted):
    assert parse_params(text).values == wanted


def test_parameters_are_never_evaluated():
    assert parse_params("x=__import__('os').getcwd()").values == {"x": "__import__('os').getcwd()"}


@pytest.mark.parametrize("text", ["reader_type", "a b=5", "=5", "reader_type CSV;"])
def test_what_is_no_parameter(text):
    with pytest.raises(ConfigError, match="is not name=value"):
        parse_params(text)


def test_a_parameter_is_said_once():
    with pytest.raises(ConfigError, match="sep= is there twice"):
        parse_params("sep=,;header=no;sep=|")


def test_unknown_readers_and_parameters_name_the_nearest():
    write("a", 1)
    with pytest.raises(ConfigError, match="reader_type=RecrdIO is none of") as error:
        list_data("a", params="reader_type=RecrdIO")
    assert error.value.help == "did you mean RecordIO?"
    with pytest.raises(ConfigError, match='the RecordIO reader knows no "sep"') as error:
        list_data("a", params="sep=,")
    assert error.value.help == "it takes none"


def test_patterns_and_several_paths():
    for name in ("data/b-1", "data/b-0", "data/a-0", "more/c"):
        write(name, 2)
    names = ["data/b-0", "data/b-1", "more/c"]
    assert [shard.name for shard in list_data("data/b-*,more/c").shards] == names
    assert [shard.name for shard in list_data("data/b-[01],more").shards] == names
    assert [shard.name for shard in list_data("**/c").shards] == ["more/c"]
    with pytest.raises(ConfigError, match='"data/z-\\*" fits no file'):
        list_data("data/z-*")
    with pytest.raises(ConfigError, match="names more/c twice"):
        list_data("more/c,more")
    with pytest.raises(ConfigError, match="names more/c twice"):
        list_data("more/c,./more/c")
    write("with,comma", 3)
    assert [shard.name for shard in list_data("with,comma").shards] == ["with,comma"]


def test_a_recordio_file_is_one_whatever_its_name_is():
    write("part.csv", 2)
    (shard,) = list_data("part.csv").shards
    assert shard.count == 2


def test_formats_are_what_stands_in_their_folder():
    names = {known.name for known in known_formats().values()}
    assert "RecordIO" in names
    for known in known_formats().values():
        assert known.suffixes
        for suffix in known.suffixes:
            assert format_of_files([f"nowhere/x{suffix}"]) is known


def test_a_file_that_was_written_anew_is_refused_by_name():
    write("a", 9)
    listed = list_data("a")
    write("a", 9, b"y")  # as long, other content
    with pytest.raises(DataError, match=r"^a has another content than .*\(records 0 to 3\)$") as error:
        RecordSource(listed.source).read(TaskRange(name="a", first=0, count=4))
    assert "put it back" in error.value.help


def test_plans_of_recordio_keep_their_names():
    """Else no job could go on with what an earlier edlz has trained."""
    write("a", 9)
    listed = list_data("a")
    plan = builders.plan(shards=listed.shards)
    assert dataclasses.is_dataclass(plan) is False
    with_source = msgspec.structs.replace(plan, source=listed.source, evaluation_source=listed.source)
    assert with_source.hash == plan.hash
    other = msgspec.structs.replace(listed.source, format="CSV")
    assert msgspec.structs.replace(plan, source=other).hash != plan.hash
    again = msgspec.json.decode(msgspec.json.encode(with_source), type=Plan)
    assert again.source == listed.source
