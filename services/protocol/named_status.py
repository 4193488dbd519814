"""A job's status as text for people and scripts: a JSON object whose fields have names.

On the wire, and in what earlier versions wrote, a status is a list without names; `decode` reads both.  Names that
are not known are passed over, and fields that are not there have their defaults, as in any message.
"""

from typing import Any

import msgspec
from msgspec import inspect

from edlz.services import strict_json
from edlz.services.protocol.job_status import JobStatus

__all__ = ["decode", "encode", "named"]


def encode(status: JobStatus) -> bytes:
    """Return the status as a JSON object."""
    return msgspec.json.encode(strict_json.plain(named(status)))


def decode(data: bytes | str) -> JobStatus:
    """Return the status that a text stands for.

    Raises
    ------
    msgspec.DecodeError
        If it is no JSON, or no status.
    """
    tree = strict_json.decode(data, object)
    if not isinstance(tree, dict):
        return strict_json.decode(data, JobStatus)
    return strict_json.convert(_listed(tree, inspect.type_info(JobStatus)), JobStatus)


def named(value: Any) -> Any:
    """Return a value whose records are dictionaries of all their fields: whoever adds one adds it here too."""
    if isinstance(value, msgspec.Struct):
        return {name: named(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple | list | frozenset | set):
        return [named(item) for item in value]
    if isinstance(value, dict):
        return {str(key): named(item) for key, item in value.items()}
    return value.hex() if isinstance(value, bytes) else value


def _listed(tree: Any, kind: inspect.Type) -> Any:
    """Return the tree with the lists that the types of its records want in place of its objects."""
    if isinstance(kind, inspect.UnionType):
        records = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
        return _listed(tree, records[0]) if tree is not None and len(records) == 1 else tree
    if isinstance(kind, inspect.VarTupleType) and isinstance(tree, list):
        return [_listed(item, kind.item_type) for item in tree]
    if not isinstance(kind, inspect.StructType) or not isinstance(tree, dict):
        return tree
    fields = [_field(tree, field, kind.cls.__name__) for field in kind.fields]
    return fields if kind.tag is None else [kind.tag, *fields]


def _field(tree: dict[str, Any], field: inspect.Field, record: str) -> Any:
    if field.name in tree:
        return _listed(tree[field.name], field.type)
    if field.required:
        raise msgspec.ValidationError(f"{record} without its field `{field.name}`")
    default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return msgspec.to_builtins(default, str_keys=True)
