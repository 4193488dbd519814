"""What scripts read, as text: the object of a job's status, and others like it."""

import json
from typing import Any

from edlz.services.protocol.job_status import JobStatus
from edlz.services.protocol.status_object import API_VERSION, status_object
from edlz.services.strict_json import plain

__all__ = ["API_VERSION", "json_line", "object_text", "status_object"]


def json_line(status: JobStatus, where: str = "local") -> str:
    """Return the status as one line."""
    return object_text(status_object(status, where), "json", is_line=True)


def object_text(content: dict[str, Any], output: str, *, is_line: bool = False) -> str:
    """Return an object for scripts and people: `json`, as one line or indented, or `yaml`."""
    if output == "yaml":
        import yaml

        return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True)).rstrip()
    return json.dumps(plain(content), ensure_ascii=False, allow_nan=False, indent=None if is_line else 1)
