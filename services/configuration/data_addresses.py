"""Addresses of data elsewhere: `s3://bucket/data.csv`.  They are shown, logged and kept: so there are no secrets in them."""

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from edlz.services.errors import ConfigError
from edlz.services.redaction import without_passwords

__all__ = ["absolute_names", "check_address", "is_address", "scheme_of", "where_credentials_are"]

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_WHERE = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or gcloud auth application-default login",
    "abfs": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    "http": "FSSPEC_HTTP_CLIENT_KWARGS",
}
_SAME = {"s3a": "s3", "gcs": "gs", "az": "abfs", "https": "http"}


def is_address(name: str) -> bool:
    """Whether a name is an address, and no path of this machine."""
    return _SCHEME.match(name) is not None


def scheme_of(name: str) -> str:
    """Return the kind of place of an address, or nothing."""
    found = _SCHEME.match(name)
    return found[1].lower() if found else ""


def where_credentials_are(name: str) -> str:
    """Return where credentials for an address come from."""
    scheme = scheme_of(name)
    return _WHERE.get(_SAME.get(scheme, scheme), f"FSSPEC_{scheme.upper()}_… variables")


def check_address(given: str, flag: str) -> None:
    """See that there are no credentials in a flag's value; commas stand between several addresses.

    Raises
    ------
    ConfigError
        If there are; it shows none of them.
    """
    for name in (given, *given.split(",")):  # a password may have commas in it
        if not is_address(name.strip()):
            continue
        try:
            split = urlsplit(name.strip())
            has_secret = "@" in split.netloc or without_passwords(f"?{split.query}") != f"?{split.query}"
        except ValueError:
            raise ConfigError(
                f"{flag} has an address that is not a valid one", "e.g. s3://bucket/rows.csv"
            ) from None
        if has_secret:
            place = f"{split.scheme}://{split.netloc.rpartition('@')[2]}{split.path}"
            raise ConfigError(
                f"{flag} has credentials in an address, {place}: it would be shown, logged and kept",
                f"leave them out; every process has them from its environment: {where_credentials_are(place)}",
            )


def absolute_names(given: str) -> str:
    """Return a flag's value with paths that mean the same in any folder; addresses stay as they are."""
    if os.path.exists(given) or "," not in given:  # many names are more than a path may be
        return _absolute(given)
    return ",".join(_absolute(part.strip()) for part in given.split(",") if part.strip())


def _absolute(name: str) -> str:
    return name if is_address(name) else str(Path(name).absolute())
