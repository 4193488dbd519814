"""`defaults=` and `columns=` of readers: values in the types of their columns, and what cannot be one."""

import math

import pytest

from edlz.services.errors import ConfigError
from edlz.services.inputs.reading.columns import defaults_of
from edlz.services.inputs.reading.params import parse_params
from edlz.services.protocol.plan import Column

COLUMNS = [
    Column(name="i", kind="int64"),
    Column(name="small", kind="int32"),
    Column(name="x", kind="float32"),
    Column(name="b", kind="bool"),
    Column(name="s", kind="string"),
]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {}),
        ("defaults=i:-1,x:0", {"i": -1, "x": 0.0}),
        ("defaults=i:5.0", {"i": 5}),
        ("defaults=i:9223372036854775807", {"i": 2**63 - 1}),
        ("defaults=x:inf", {"x": math.inf}),
        ("defaults=b:no", {"b": False}),
        ("defaults=b:1", {"b": True}),
        ("defaults={'b': True, 's': 'a,b'}", {"b": True, "s": "a,b"}),
        ("defaults=s:0", {"s": "0"}),
        ("defaults=elsewhere:x", {}),
    ],
)
def test_defaults(text: str, wanted: dict[str, object]) -> None:
    found = defaults_of(parse_params(text), COLUMNS)
    assert found == wanted
    assert all(type(found[name]) is type(value) for name, value in wanted.items())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("i:x", "'x' for i, which is no int64"),
        ("i:1.5", "1.5 for i, which is no int64"),
        ("i:True", "True for i, which is no int64"),
        ("i:9223372036854775808", "9223372036854775808 for i, which is no int64"),
        ("i:inf", "'inf' for i, which is no int64"),
        ("small:2147483648", "2147483648 for small, which is no int32"),
        ("x:None", "None for x, which is no float32"),
        ("b:2", "2 for b, which is no bool"),
    ],
)
def test_what_is_no_value_of_its_column(text: str, shown: str) -> None:
    with pytest.raises(ConfigError, match=f"^--data_reader_params: defaults='{text}' has {shown}$") as error:
        defaults_of(parse_params(f"defaults={text}"), COLUMNS)
    assert error.value.help.startswith("e.g. defaults=")


@pytest.mark.parametrize(
    ("text", "told"), [("columns=a,b,a", 'names "a" twice'), ("columns=", "names no column")]
)
def test_columns_are_named_once(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_params(text).columns()
