"""What a body may hold: the published schemas of Kubernetes 1.36, read as its Go decoder reads them.

A field of a wrong type is refused with Go's words; an unknown field is only reported, and what becomes of the
report (a warning, a refusal) is the request's choice. Merge keys of lists, for strategic merge patches, come
from the same place.
"""

import functools
import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]

from tests.k8s.server.objects.errors import bad_request
from tests.k8s.server.objects.kinds import Resource

__all__ = ["Schema", "check_types", "schema_of"]

Schema = dict[str, Any]

_VERSION = "v1.36.0-local"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_QUANTITY_FORM = re.compile(r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)")
_SUFFIX = re.compile(r"|[numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]+")
_GO_NAMES = {"string": "string", "boolean": "bool", "integer": "int64", "number": "float64"}


@functools.cache
def _definitions() -> dict[str, Schema]:
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / _VERSION
    definitions: dict[str, Schema] = json.loads((folder / "_definitions.json").read_text())["$defs"]
    return definitions


def schema_of(resource: Resource) -> Schema:
    return {"$ref": f"#/$defs/{resource.schema}"}


def resolve(schema: Schema) -> tuple[str, Schema]:
    """Follow a reference: the definition's name (empty for an inline schema), and the schema."""
    if "$ref" not in schema:
        return "", schema
    name = schema["$ref"].rpartition("/")[2]
    return name, _definitions()[name]


def check_types(resource: Resource, obj: dict[str, Any]) -> list[str]:
    """Return the paths of unknown fields; drop null values of known ones, in place.

    Raises
    ------
    ApiError
        400, if a known field has a value of a wrong type or a quantity that is none.
    """
    walk = _Walk(resource)
    walk.value(obj, schema_of(resource), "", resource.kind)
    return walk.unknown


class _Walk:
    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self.unknown: list[str] = []

    def value(self, value: Any, schema: Schema, path: str, owner: str) -> None:
        name, schema = resolve(schema)
        if name == _QUANTITY:
            self._quantity(value)
        elif "properties" in schema:
            self._object(value, schema, path, name.rpartition(".")[2], owner)
        elif "additionalProperties" in schema:
            self._expect(value, dict, path, owner, "map[string]string")
            for key in [key for key, item in value.items() if item is None]:
                del value[key]
            for item in value.values():
                self.value(item, schema["additionalProperties"], path, owner)
        elif "items" in schema:
            self._expect(value, list, path, owner, "[]" + self._go_name(schema["items"]))
            for index, item in enumerate(value):
                self.value(item, schema["items"], f"{path}[{index}]", owner)
        else:
            self._scalar(value, schema, path, owner)

    def _object(self, value: Any, schema: Schema, path: str, name: str, owner: str) -> None:
        self._expect(value, dict, path, owner, name)
        known = schema["properties"]
        for key in list(value):
            inner = f"{path}.{key}" if path else key
            if key not in known:
                self.unknown.append(inner)
                del value[key]
            elif value[key] is None:
                del value[key]
            else:
                self.value(value[key], known[key], inner, name)

    def _scalar(self, value: Any, schema: Schema, path: str, owner: str) -> None:
        kinds = schema.get("type")
        if kinds is None:
            return
        kind = kinds if isinstance(kinds, str) else kinds[0]
        fits = {
            "string": isinstance(value, str),
            "boolean": isinstance(value, bool),
            "integer": isinstance(value, int) and not isinstance(value, bool),
            "number": isinstance(value, (int, float)) and not isinstance(value, bool),
        }
        if not fits.get(kind, True):
            self._refuse(value, path, owner, self._go_name(schema))

    def _expect(self, value: Any, wanted: type, path: str, owner: str, go_name: str) -> None:
        if not isinstance(value, wanted):
            self._refuse(value, path, owner, go_name)

    def _refuse(self, value: Any, path: str, owner: str, go_name: str) -> None:
        found = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}
        where = re.sub(r"\[\d+\]", "", path)
        self._cannot(
            f"json: cannot unmarshal {found.get(type(value), 'null')} into Go struct field {owner}.{where} "
            f"of type {go_name}"
        )

    def _quantity(self, value: Any) -> None:
        match = _QUANTITY_FORM.fullmatch(str(value))
        if match is None:
            self._cannot(f"quantities must match the regular expression '^{_QUANTITY_FORM.pattern}$'")
        elif _SUFFIX.fullmatch(match[2]) is None:
            self._cannot("unable to parse quantity's suffix")

    def _cannot(self, why: str) -> None:
        kind, version = self._resource.kind, self._resource.version
        raise bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')

    def _go_name(self, schema: Schema) -> str:
        name, schema = resolve(schema)
        if name:
            return name.removeprefix("io.k8s.api.").replace(".", "/", 0).rpartition(".")[2]
        kinds = schema.get("type", "")
        kind = kinds if isinstance(kinds, str) else kinds[0]
        if schema.get("format") == "int32":
            return "int32"
        return _GO_NAMES.get(kind, kind)
