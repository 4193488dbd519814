"""What is told to others without what is not theirs to know: passwords in addresses, tokens, keys.  Pure."""

import re

__all__ = ["HIDDEN", "without_passwords", "without_secrets"]

HIDDEN = "***"

# A scheme or the begin of a word, then whatever stands before the last @ of an address: a password may hold any letter.
# The digest of an image stands behind an @, too.
_CREDENTIALS = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^\s\"'<>]*@|(?<![^\s,;=\"'(])[^\s@,;=\"'(]+:[^\s@]+@(?!sha256:)"
)
_QUERY = re.compile(r"(?i)(?P<name>[?&](?:[a-z_-]*(?:token|password|secret|key|sig|signature)))=[^&\s\"']+")
_SECRET = re.compile(
    r"(?i)([\w.-]*(?:password|passwd|secret|token|credential|api[_-]?key|access[_-]?key|private[_-]?key)[\w.-]*"
    r"[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;&\"']+)"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")


def without_passwords(text: str, mark: str = "…") -> str:
    """Return a text with a mark in place of the user and password of each address in it, and of tokens in its query."""
    text = _CREDENTIALS.sub(lambda found: f"{found['scheme'] or ''}{mark}@", text)
    return _QUERY.sub(lambda found: f"{found['name']}={mark}", text)


def without_secrets(text: str) -> str:
    """Return a text without passwords of addresses, and without what else looks like a secret in it."""
    text = _BEARER.sub(rf"\1 {HIDDEN}", without_passwords(text, HIDDEN))
    return _SECRET.sub(rf"\g<1>{HIDDEN}", text)
