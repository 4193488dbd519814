"""What nobody may see who looks at a page."""

import json

import pytest

from edlz.services.master.page.rendering import render
from edlz.services.master.page.settings_table import command_to_repeat, settings_rows, shown_setting
from edlz.services.redaction import without_secrets
from tests import builders
from tests.shown_pages import content

SECRETS = ("s3cret", "hunter2", "a,b")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:hunter2@index.example/simple", "https://***@index.example/simple"),
        ("no room in s3://key:hunter2@bucket/x, tried twice", "no room in s3://***@bucket/x, tried twice"),
        ("s3://key:hun/ter@2@bucket/x is not there", "s3://***@bucket/x is not there"),
        ("https://index.example/simple?sig=s3cret&n=1", "https://index.example/simple?sig=***&n=1"),
        ("registry.example:5000/edlz@sha256:0123", "registry.example:5000/edlz@sha256:0123"),
        ("token=s3cret", "token=***"),
        ("AWS_SECRET_ACCESS_KEY=s3cret&region=eu", "AWS_SECRET_ACCESS_KEY=***&region=eu"),
        ("KeyError: {'password': 's3cret word', 'n': 1}", "KeyError: {'password': ***, 'n': 1}"),
        ("Authorization: Bearer s3cret-s3cret", "Authorization: Bearer ***"),
        ("task 63 raised the same error 3 times", "task 63 raised the same error 3 times"),
        ("tokens 12, loss=0.5", "tokens 12, loss=0.5"),
    ],
)
def test_texts(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("envs", "A=1,B=s3cret,c", "A=***,B=***,***"),
        ("envs", "A=hunter2=s3cret", "A=***"),
        ("model_params", "rate=0.1;api_key='s3cret'", "rate=0.1;api_key=***"),
        ("use_async", True, "yes"),
        ("num_workers", 4, "4"),
    ],
)
def test_settings(name: str, value: object, shown: str) -> None:
    assert shown_setting(name, value) == shown


def test_of_an_object_that_changes_pods_only_its_form_is_shown() -> None:
    spec = {
        "pod": {"spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "s3cret"}], "n": 2}]}}
    }
    shown = shown_setting("cluster_spec_json", json.dumps(spec))
    assert "s3cret" not in shown
    assert json.loads(shown)["pod"]["spec"]["containers"][0]["name"] == "main"
    assert shown_setting("cluster_spec_json", '{"a": s3cret') == "***"


def test_no_secret_is_anywhere_on_the_page_or_in_what_scripts_read() -> None:
    tree = content().tree()
    for text in (
        render(tree, is_report=False).decode(),
        render(tree, is_report=True).decode(),
        json.dumps(tree),
    ):
        assert "TOKEN=***" in text
        assert [secret for secret in SECRETS if secret in text] == []


def test_where_settings_come_from_and_the_command_that_repeats_the_job() -> None:
    settings = builders.settings(
        num_workers=4,
        seed=7,
        origins="num_workers=job.yaml:6;seed=EDLZ_SEED;model_def=;training_data=",
    )
    origins = {row["name"]: row["origin"] for row in settings_rows(settings)}
    assert origins["num_workers"] == "job.yaml:6, over default 2"
    assert origins["seed"] == "EDLZ_SEED, over default 0"
    assert origins["training_data"] == "command line"
    assert origins["grads_to_wait"] == "worked out"
    words = command_to_repeat(settings).split()
    assert words[:2] == ["edlz", "train"]
    assert {"--num_workers=4", "--seed=7", "--model_def=a.b"} <= set(words)
