"""Cores read a job's flags typed, and with the flags' own defaults."""

from dataclasses import fields

import pytest

from edlz.services.configuration.job_config import JobConfig
from edlz.services.configuration.job_settings import JobSettings
from edlz.services.errors import RemoteProtocolError


def test_what_a_record_leaves_out_is_as_the_flags_have_it() -> None:
    assert JobSettings.of({}) == JobSettings.of(JobConfig().to_record())


def test_every_setting_is_the_flag_of_its_name_and_type() -> None:
    kinds = {"str": "text", "int": 1, "float": 2.5, "bool": True}
    flags = {field.name: field.type for field in fields(JobConfig)}
    for field in fields(JobSettings):
        assert flags[field.name] == field.type
        other = kinds[field.type.__name__]
        if field.type is bool:
            other = not getattr(JobConfig(), field.name)
        assert getattr(JobSettings.of({field.name: other}), field.name) == other


@pytest.mark.parametrize("name", ["stop_on_nan", "checkpoint_steps", "recovery_snapshot_secs", "output"])
def test_a_value_of_another_type_is_refused(name: str) -> None:
    with pytest.raises(RemoteProtocolError, match=f"the job's {name} came as"):
        JobSettings.of({name: ()})  # type: ignore[dict-item]
