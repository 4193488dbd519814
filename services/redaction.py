"""What is told to others of addresses that may hold a password: the address without it.  Pure."""

import re

__all__ = ["without_passwords"]

# A scheme or the begin of a word, then whatever stands before the last @ of an address: a password may hold any letter.
_CREDENTIALS = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^\s\"'<>]*@|(?<![^\s,;=\"'(])[^\s@,;=\"'(]+:[^\s@]+@"
)
_QUERY = re.compile(r"(?i)(?P<name>[?&](?:[a-z_-]*(?:token|password|secret|key|sig|signature)))=[^&\s\"']+")


def without_passwords(text: str) -> str:
    """Return a text with `…` in place of the user and password of each address in it, and of tokens in its query."""
    text = _CREDENTIALS.sub(lambda found: f"{found['scheme'] or ''}…@", text)
    return _QUERY.sub(r"\g<name>=…", text)
