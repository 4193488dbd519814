"""Keys of a job on disk: who may read them, and what is said of those that cannot be used."""

import os
import stat
from pathlib import Path

import pytest
import zmq

from edlz.services.errors import ConfigError
from edlz.services.transport.keys import (
    PUBLIC_FILE,
    ROLES,
    job_keys_in,
    load_job_keys,
    load_keys,
    make_job_keys,
    secret_file,
    write_keys,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_keys(tmp_path / "keys", make_job_keys())
    return tmp_path / "keys"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    keys = make_job_keys()
    write_keys(tmp_path / "new" / "keys", keys)
    assert load_job_keys(tmp_path / "new" / "keys") == keys
    for role in ROLES:
        assert load_keys(tmp_path / "new" / "keys", role) == keys.of(role)
        assert zmq.curve_public(keys.pairs[role].secret) == keys.pairs[role].public
    assert len({pair.secret for pair in keys.pairs.values()}) == len(ROLES)


def test_keys_are_made_once(tmp_path: Path) -> None:
    keys = job_keys_in(tmp_path / "keys")
    assert job_keys_in(tmp_path / "keys") == keys == load_job_keys(tmp_path / "keys")
    (tmp_path / "keys" / "ps.key").unlink()
    with pytest.raises(ConfigError, match=r"ps\.key"):
        job_keys_in(tmp_path / "keys")


def test_a_role_needs_its_own_secret_only(folder: Path) -> None:
    (folder / "master.key").unlink()
    assert load_keys(folder, "worker").role == "worker"


def test_only_the_user_may_read_them(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        write_keys(tmp_path / "keys", make_job_keys())
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
    for path in (tmp_path / "keys").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_secret_is_in_a_repr() -> None:
    keys = make_job_keys()
    for role in ROLES:
        assert keys.pairs[role].secret.decode() not in repr(keys) + repr(keys.of(role))


def test_keys_are_not_written_over(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ConfigError, match="there already"):
        write_keys(folder, make_job_keys())
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == ["keys"]


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    write_keys(tmp_path, make_job_keys())
    assert {path.name for path in tmp_path.iterdir()} == {PUBLIC_FILE, *map(secret_file, ROLES)}


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("edlz.services.transport.keys.os.fsync", fail)
    with pytest.raises(ConfigError, match="No space left"):
        write_keys(tmp_path / "keys", make_job_keys())
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no") as caught:
        load_keys(tmp_path / "none", "worker")
    assert "edlz keys" in caught.value.help


def test_a_missing_secret_is_named(folder: Path) -> None:
    (folder / "ps.key").unlink()
    with pytest.raises(ConfigError, match=r"ps\.key"):
        load_keys(folder, "ps")


def test_a_folder_in_the_place_of_a_file(folder: Path) -> None:
    (folder / "ps.key").unlink()
    (folder / "ps.key").mkdir()
    with pytest.raises(ConfigError, match=r"cannot read .*ps\.key"):
        load_keys(folder, "ps")


@pytest.mark.parametrize(("name", "mode"), [("ps.key", 0o604), ("ps.key", 0o602), (PUBLIC_FILE, 0o646)])
def test_keys_that_everybody_may_touch_are_refused(folder: Path, name: str, mode: int) -> None:
    (folder / name).chmod(mode)
    with pytest.raises(ConfigError, match="everybody may") as caught:
        load_keys(folder, "ps")
    assert "chmod" in caught.value.help


def test_a_group_may_read_them_as_in_a_mounted_secret(folder: Path) -> None:
    for path in folder.iterdir():
        path.chmod(0o440 if path.name != PUBLIC_FILE else 0o644)
    assert load_keys(folder, "ps").role == "ps"


@pytest.mark.parametrize(
    "content", [b"", b"x" * 39, b"x" * 39 + b"\xff", b"#" * 40, b"~" * 40, b"\0" * 100_000]
)
def test_a_damaged_secret_is_named(folder: Path, content: bytes) -> None:
    (folder / "ps.key").write_bytes(content)
    with pytest.raises(ConfigError, match=r"ps\.key is damaged"):
        load_keys(folder, "ps")


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"keys": {}}', b'{"keys": {"master": 3}}', b'{"keys": 1', b"\xff"]
)
def test_damaged_public_keys_are_named(folder: Path, content: bytes) -> None:
    (folder / PUBLIC_FILE).write_bytes(content)
    with pytest.raises(ConfigError, match=r"public\.json is damaged"):
        load_keys(folder, "ps")


def test_keys_of_two_jobs_do_not_fit(folder: Path, tmp_path: Path) -> None:
    write_keys(tmp_path / "other", make_job_keys())
    (folder / "ps.key").write_bytes((tmp_path / "other" / "ps.key").read_bytes())
    with pytest.raises(ConfigError, match="not of the same job"):
        load_keys(folder, "ps")
