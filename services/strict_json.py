"""JSON in which numbers that are not finite survive.

JSON has no NaN and no infinities.  Python's writer prints them all the same, which few others can read; msgspec
writes null, which does not come back as a number.  A diverged model gives such losses and metrics, so they are
written as the texts "NaN", "Infinity" and "-Infinity", as in the JSON form of Protocol Buffers: `float` in Python
and `Number` in JavaScript make numbers of them again.  What is finite is written as msgspec writes it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

__all__ = ["convert", "decode", "encode", "parse", "plain"]

_T = TypeVar("_T")

_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def encode(value: object) -> bytes:
    """Return a record, or whatever else msgspec knows, as JSON."""
    return msgspec.json.encode(plain(msgspec.to_builtins(value, str_keys=True)))


def plain(tree: Any) -> Any:
    """Return nested dictionaries and sequences with texts in place of the numbers that are not finite."""
    if isinstance(tree, float):
        return tree if math.isfinite(tree) else _name(tree)
    if isinstance(tree, Mapping):
        return {key: plain(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [plain(value) for value in tree]
    return tree


def decode(data: bytes | str | msgspec.Raw, kind: type[_T]) -> _T:
    """Return the record that some JSON stands for.

    Raises
    ------
    msgspec.DecodeError
        If it is no JSON, or no such record.
    """
    try:
        return parse(data, kind)
    except msgspec.ValidationError:  # because of a number that is not finite, perhaps
        return convert(parse(data, object), kind)


def parse(data: bytes | bytearray | str | msgspec.Raw, kind: type[_T]) -> _T:
    """Return the record that some JSON stands for, as msgspec reads it.

    Everything that edlz reads as JSON is read here: msgspec has two more errors for text that is no JSON.

    Raises
    ------
    msgspec.DecodeError
        If it is no JSON, or (ValidationError) stands for no such record.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"not UTF-8: {error.reason}") from error
    except RecursionError as error:
        raise msgspec.DecodeError("nested too deeply") from error


def convert(tree: object, kind: type[_T]) -> _T:
    """Return the record that decoded JSON stands for; errors as for `decode`.

    Earlier versions wrote null where a number was not finite: that is NaN now.
    """
    restored = _restored(tree, inspect.type_info(kind))
    return msgspec.convert(restored, type=kind, str_keys=True)


def _name(number: float) -> str:
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _restored(tree: Any, kind: inspect.Type) -> Any:
    """Return the tree with the numbers that its texts, or null, stand for where the type wants a number."""
    if isinstance(kind, inspect.UnionType):
        return _restored_choice(tree, kind.types)
    if isinstance(kind, inspect.FloatType):
        return math.nan if tree is None else _NUMBERS.get(tree, tree) if isinstance(tree, str) else tree
    if isinstance(tree, dict):
        return _restored_object(tree, kind)
    return _restored_list(tree, kind) if isinstance(tree, list) else tree


def _restored_choice(tree: Any, kinds: Sequence[inspect.Type]) -> Any:
    found = [kind for kind in kinds if not isinstance(kind, inspect.NoneType)]
    if tree is None or isinstance(tree, str):
        as_it_is = inspect.NoneType if tree is None else inspect.StrType
        is_settled = any(isinstance(kind, as_it_is) for kind in kinds)
        found = [kind for kind in found if isinstance(kind, inspect.FloatType) and not is_settled]
    return _restored(tree, found[0]) if len(found) == 1 else tree


def _restored_object(tree: dict[str, Any], kind: inspect.Type) -> dict[str, Any]:
    if isinstance(kind, inspect.DictType):
        return {key: _restored(value, kind.value_type) for key, value in tree.items()}
    if isinstance(kind, inspect.StructType | inspect.DataclassType):
        kinds = {field.encode_name: field.type for field in kind.fields}
        return {key: _restored(value, kinds[key]) if key in kinds else value for key, value in tree.items()}
    return tree


def _restored_list(tree: list[Any], kind: inspect.Type) -> list[Any]:
    if isinstance(kind, inspect.ListType | inspect.VarTupleType):
        return [_restored(value, kind.item_type) for value in tree]
    kinds: tuple[inspect.Type, ...] = ()
    if isinstance(kind, inspect.TupleType):
        kinds = kind.item_types
    elif isinstance(kind, inspect.StructType):  # array_like
        kinds = tuple(field.type for field in kind.fields)
        if kind.tag is not None:  # it stands before the fields
            return [*tree[:1], *_restored_items(tree[1:], kinds)]
    return _restored_items(tree, kinds)


def _restored_items(items: list[Any], kinds: Sequence[inspect.Type]) -> list[Any]:
    known = [_restored(value, kind) for value, kind in zip(items, kinds, strict=False)]
    return known + items[len(known) :]
