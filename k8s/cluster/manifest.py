"""Objects as plain data and as the YAML that `kubectl apply` takes."""

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

import yaml
from kubernetes import client

__all__ = ["to_plain", "to_yaml"]

_PLAIN = re.compile(r"[A-Za-z/][-A-Za-z0-9_./]*")
_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"])


def to_plain(item: object) -> Any:
    """Return an object of the Kubernetes client as dicts and lists, without what is not set."""
    return _api_client().sanitize_for_serialization(item)


def to_yaml(objects: Iterable[object]) -> str:
    """Return objects, of the client or plain, as one YAML text."""
    return yaml.dump_all(
        [to_plain(item) for item in objects],
        Dumper=_Dumper,
        sort_keys=False,
        explicit_start=True,
        allow_unicode=True,
        width=1000,
    )


@cache
def _api_client() -> Any:
    return client.ApiClient(client.Configuration())


class _Dumper(yaml.SafeDumper):
    """Quotes every text that some reader of YAML might take for something else: `1e3`, `y`, `012`."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, indentless=False)


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = None
    if "\n" in text and all(letter.isprintable() or letter == "\n" for letter in text):
        style = "|"
    elif not _PLAIN.fullmatch(text) or text.lower() in _WORDS:
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
