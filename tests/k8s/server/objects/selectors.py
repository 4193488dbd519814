"""Label and field selectors, as the query strings of lists and watches spell them."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.k8s.server.objects.errors import bad_request
from tests.k8s.server.objects.kinds import Resource

__all__ = ["Selector", "field_selector", "label_selector"]

Selector = Callable[[Mapping[str, Any]], bool]

_TOKEN = re.compile(r"\s*(!=|==|=|\(|\)|,|!|>|<|[^\s=!(),<>]+)")
_EXPECTED = "in, notin, =, ==, !=, gt, lt"


def label_selector(text: str) -> Selector:
    """Parse `app=x,tier in (a, b),!old`; the empty text selects everything."""
    tokens = _TOKEN.findall(text)
    tests: list[Selector] = []
    at = 0
    while at < len(tokens):
        test, at = _requirement(tokens, at)
        tests.append(test)
        if at < len(tokens):
            if tokens[at] != ",":
                raise bad_request(f"unable to parse requirement: found '{tokens[at]}', expected: , or ''")
            at += 1
    return lambda labels: all(test(labels) for test in tests)


def _requirement(tokens: list[str], at: int) -> tuple[Selector, int]:
    if tokens[at] == "!":
        key = _token(tokens, at + 1)
        return (lambda labels: key not in labels), at + 2
    key, at = tokens[at], at + 1
    if at == len(tokens) or tokens[at] == ",":
        return (lambda labels: key in labels), at
    operator, at = tokens[at], at + 1
    if operator in ("=", "=="):
        value, at = _value(tokens, at)
        return (lambda labels: labels.get(key) == value), at
    if operator == "!=":
        value, at = _value(tokens, at)
        return (lambda labels: labels.get(key) != value), at
    if operator in ("in", "notin"):
        values, at = _values(tokens, at)
        wanted = operator == "in"
        return (lambda labels: (key in labels and labels[key] in values) == wanted), at
    raise bad_request(f"unable to parse requirement: found '{operator}', expected: {_EXPECTED}")


def _token(tokens: list[str], at: int) -> str:
    return tokens[at] if at < len(tokens) else ""


def _value(tokens: list[str], at: int) -> tuple[str, int]:
    token = _token(tokens, at)
    return ("", at) if token in ("", ",") else (token, at + 1)


def _values(tokens: list[str], at: int) -> tuple[set[str], int]:
    if _token(tokens, at) != "(":
        raise bad_request(f"unable to parse requirement: found '{_token(tokens, at)}' expected: '('")
    values, at = set(), at + 1
    while (token := _token(tokens, at)) != ")":
        if not token:
            raise bad_request("unable to parse requirement: found '', expected: ',' or ')'")
        if token != ",":
            values.add(token)
        at += 1
    return values, at + 1


def field_selector(resource: Resource, text: str) -> Selector:
    """Parse `status.phase=Running,spec.nodeName!=n`; refuse fields that the resource does not offer."""
    tests: list[Selector] = []
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"\s*(.*?)\s*(==|!=|=)\s*(.*?)\s*", part)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        path, operator, value = match.groups()
        _check_field(resource, path)
        tests.append(_field_test(path, value, operator != "!="))
    return lambda obj: all(test(obj) for test in tests)


def _check_field(resource: Resource, path: str) -> None:
    known = ("metadata.name", "metadata.namespace") if resource.is_namespaced else ("metadata.name",)
    if path in (*known, *resource.fields):
        return
    if resource.fields:
        raise bad_request(f"field label not supported: {path}")
    names = ", ".join(f'"{name}"' for name in known)
    raise bad_request(f'"{path}" is not a known field selector: only {names}')


def _field_test(path: str, value: str, wanted: bool) -> Selector:
    keys = path.split(".")

    def test(obj: Mapping[str, Any]) -> bool:
        found: Any = obj
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        if isinstance(found, bool):
            found = str(found).lower()
        return (str(found or "") == value) == wanted

    return test
