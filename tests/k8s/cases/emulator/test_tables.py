"""Tables as kubectl shows them."""

import pytest

from tests.k8s.server.objects.kinds import RESOURCES
from tests.k8s.server.tables import age_text, is_table_wanted, table_of

PODS = RESOURCES["pods"]
ACCEPT = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z


def shown(status: dict[str, object], **metadata: str) -> list[str]:
    """Return the cells of a pod that is a minute old."""
    made = {"name": "p", "creationTimestamp": "2025-12-31T23:59:00Z", **metadata}
    pod = {"metadata": made, "spec": {"containers": [{}]}, "status": status}
    (row,) = table_of(PODS, {"metadata": {"resourceVersion": "7"}, "items": [pod]}, NOW)["rows"]
    cells: list[str] = row["cells"]
    return cells


def test_a_table_is_only_for_those_who_ask() -> None:
    assert is_table_wanted(PODS, ACCEPT)
    assert not is_table_wanted(PODS, "application/json")
    assert not is_table_wanted(RESOURCES["leases"], ACCEPT)


def test_the_state_of_a_pod() -> None:
    assert shown({"phase": "Pending"}) == ["p", "0/1", "Pending", "0", "60s"]
    running = {"ready": True, "restartCount": 0, "state": {"running": {}}}
    assert shown({"phase": "Running", "containerStatuses": [running]})[1:3] == ["1/1", "Running"]
    waiting = {"state": {"waiting": {"reason": "ErrImagePull"}}}
    assert shown({"phase": "Pending", "containerStatuses": [waiting]})[2] == "ErrImagePull"
    ended = {"state": {"terminated": {"reason": "Completed", "exitCode": 0}}}
    assert shown({"phase": "Succeeded", "containerStatuses": [ended]})[2] == "Completed"
    assert shown({"phase": "Failed", "reason": "Evicted"})[2] == "Evicted"
    assert shown({"phase": "Running"}, deletionTimestamp="2026-01-01T00:00:00Z")[2] == "Terminating"


def test_restarts_tell_when_the_last_one_was() -> None:
    ended = {"terminated": {"exitCode": 1, "finishedAt": "2025-12-31T23:59:50Z"}}
    again = {"restartCount": 2, "state": {"running": {}}, "lastState": ended}
    assert shown({"phase": "Running", "containerStatuses": [again]})[3] == "2 (10s ago)"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.5, "0s"), (119, "119s"), (130, "2m10s"), (300, "5m"), (660, "11m"), (12000, "3h20m"), (2e5, "2d")],
)
def test_ages(seconds: float, text: str) -> None:
    assert age_text(seconds) == text
