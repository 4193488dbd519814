"""What is not shown to whoever may look at a page: values of --envs, passwords in addresses, keys."""

import json
import re
from typing import Any

__all__ = ["HIDDEN", "shown_setting", "shown_text"]

HIDDEN = "***"
_PASSWORD = re.compile(r"(?<=://)[^/\s@]+@")  # of an address: user:password@
_SECRET = re.compile(
    r"(?i)([\w.-]*(?:password|passwd|secret|token|credential|api[_-]?key|access[_-]?key|private[_-]?key)[\w.-]*"
    r"[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;&\"']+)"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")


def shown_text(text: str) -> str:
    """Return a text without what looks like a secret in it."""
    text = _PASSWORD.sub(f"{HIDDEN}@", text)
    text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    return _SECRET.sub(rf"\g<1>{HIDDEN}", text)


def shown_setting(name: str, value: object) -> str:
    """Return the value of a flag as anybody may see it."""
    text = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
    if name == "envs":
        return ",".join(_without_value(part) for part in text.split(","))
    if name == "cluster_spec_json":
        return _shown_json(text)
    return shown_text(text)


def _without_value(part: str) -> str:
    key, equals, _ = part.partition("=")
    return f"{key}={HIDDEN}" if equals else HIDDEN  # a value may hold a comma


def _shown_json(text: str) -> str:
    """Return JSON with no text but names and kinds: any other may be a variable's value."""
    try:
        return json.dumps(_shown_tree(json.loads(text)))
    except (ValueError, RecursionError):
        return HIDDEN


def _shown_tree(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {
            key: value if key in ("name", "kind") and isinstance(value, str) else _shown_tree(value)
            for key, value in tree.items()
        }
    if isinstance(tree, list):
        return [_shown_tree(item) for item in tree]
    return HIDDEN if isinstance(tree, str) else tree
