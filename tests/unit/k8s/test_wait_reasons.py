"""What Kubernetes says of a pod that waits, and what is left of it for whoever waits."""

import json
from pathlib import Path

import pytest

from edlz.k8s.pods.wait_reasons import LONGEST, image_help, image_reason, plain_reason

RECORDED = Path(__file__).parents[2] / "k8s" / "kubernetes-1.36.2-room.jsonl"
PULL = 'failed to pull and unpack image "docker.io/library/edlz:mnst": failed to resolve reference "docker.io/library/edlz:mnst": '
HEAD = 'failed to do request: Head "https://registry.lab:5000/v2/team/edlz/manifests/mnist": '


def test_the_schedulers_text_as_it_was_recorded() -> None:
    records = map(json.loads, RECORDED.read_text().splitlines())
    (event,) = (record["event"] for record in records if record["name"] == "room: event")
    assert event["message"].startswith("0/2 nodes are available: 2 Insufficient cpu. no new claims")
    assert plain_reason(event["message"]) == "0/2 nodes: Insufficient cpu"
    assert plain_reason(f"FailedScheduling: {event['message']}") == "0/2 nodes: Insufficient cpu"


@pytest.mark.parametrize(
    ("why", "shown"),
    [
        ("2 Insufficient cpu", "Insufficient cpu"),
        ("1 Insufficient cpu, 1 Too many pods", "1 Insufficient cpu, 1 Too many pods"),
        (
            "1 Insufficient memory, 1 node(s) had untolerated taint(s)",
            "1 Insufficient memory, 1 node(s) had untolerated taint(s)",
        ),
        (
            "2 node(s) had untolerated taint {node.kubernetes.io/not-ready: }",
            "node(s) had untolerated taint {node.kubernetes.io/not-ready: }",
        ),
        ('persistentvolumeclaim "data" not found', 'persistentvolumeclaim "data" not found'),
        (
            "pod has unbound immediate PersistentVolumeClaims",
            "pod has unbound immediate PersistentVolumeClaims",
        ),
    ],
)
@pytest.mark.parametrize(
    "after",
    [
        "",
        ".",
        ". preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod.",
        ". preemption: not eligible due to preemptionPolicy=Never.",
        ". no new claims to deallocate, preemption: 0/2 nodes are available: 1 No preemption victims found "
        "for incoming pod, 1 Preemption is not helpful for scheduling.",
        ". no new claims to deallocate",
    ],
)
def test_what_no_node_has_is_told_without_what_could_not_be_done_about_it(
    why: str, shown: str, after: str
) -> None:
    assert plain_reason(f"0/2 nodes are available: {why}{after}") == f"0/2 nodes: {shown}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\nlines", "two lines"),
        ("no nodes available to schedule pods", "no nodes available to schedule pods"),
        ("x" * 300, "x" * 159 + "…"),
    ],
)
def test_other_texts_stay_as_they_are_on_one_line(text: str, shown: str) -> None:
    assert plain_reason(text) == shown


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (PULL + "docker.io/library/edlz:mnst: not found", "docker.io/library/edlz:mnst: not found"),
        (
            PULL + "pull access denied, repository does not exist or may require authorization: "
            "server message: insufficient_scope: authorization failed",
            "pull access denied, repository does not exist or may require authorization",
        ),
        (
            PULL + HEAD + "dial tcp: lookup registry.lab on 10.96.0.10:53: no such host",
            "dial tcp: lookup registry.lab on 10.96.0.10:53: no such host",
        ),
        (
            PULL + HEAD + "tls: failed to verify certificate: x509: certificate signed by unknown authority",
            "tls: failed to verify certificate: x509: certificate signed by unknown authority",
        ),
        (
            PULL + HEAD + "http: server gave HTTP response to HTTPS client",
            "http: server gave HTTP response to HTTPS client",
        ),
        (
            'failed to pull and unpack image "edlz:mnst": no match for platform in manifest: not found',
            "no match for platform in manifest: not found",
        ),
        (
            "Error response from daemon: pull access denied for edlz, repository does not exist",
            "pull access denied for edlz, repository does not exist",
        ),
        (
            "initializing source docker://registry.lab/edlz:mnst: reading manifest mnst in registry.lab/edlz: "
            "manifest unknown",
            "manifest unknown",
        ),
    ],
)
@pytest.mark.parametrize(
    "before",
    [
        "",
        "rpc error: code = NotFound desc = ",
        'Back-off pulling image "edlz:mnst": ErrImagePull: ',
        'Back-off pulling image "edlz:mnst": ErrImagePull: rpc error: code = Unknown desc = ',
        'Failed: Failed to pull image "edlz:mnst": ',
    ],
)
def test_the_cause_of_a_pull_that_fails_is_told_and_not_what_stands_before_it(
    said: str, cause: str, before: str
) -> None:
    assert image_reason("edlz:mnst", before + said) == f"image edlz:mnst cannot be pulled: {cause}"


def test_a_cause_that_only_an_event_tells() -> None:
    waiting, event = (
        'Back-off pulling image "edlz:mnst"',
        'Failed: Failed to pull image "edlz:mnst": not found',
    )
    assert image_reason("edlz:mnst", waiting) == "image edlz:mnst cannot be pulled"
    assert image_reason("edlz:mnst", waiting, event=event) == "image edlz:mnst cannot be pulled: not found"


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("image e:m cannot be pulled: docker.io/library/e:m: not found", "the right --image_name"),
        ("image e:m cannot be pulled: pull access denied, repository does not exist", "imagePullSecrets"),
        ("image e:m cannot be pulled: dial tcp: lookup r.lab: no such host", "do not reach that registry"),
        ("image e:m cannot be pulled: x509: certificate signed by unknown authority", "trust"),
        ("image e:m cannot be pulled: http: server gave HTTP response to HTTPS client", "http"),
        ("image e:m cannot be pulled: no match for platform in manifest: not found", "--platform"),
        ('image e cannot be pulled: Container image "e" is not present with pull policy of Never', "load it"),
    ],
)
def test_what_to_do_about_an_image(reason: str, advice: str) -> None:
    assert advice in image_help(reason)
    assert image_help("0/2 nodes: volume not found") == ""


def test_the_end_of_an_unknown_text_is_kept() -> None:
    text = f"something of a runtime that nobody knows {'long ' * 60}: no space left on device"
    shown = image_reason("edlz:mnst", text)
    assert len(shown) <= LONGEST
    assert shown.startswith("image edlz:mnst cannot be pulled: something of a runtime")
    assert shown.endswith(": no space left on device")
    assert image_reason("r/" + "x" * 200, text).endswith(": no space left on device")
