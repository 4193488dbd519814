"""Images through the Docker SDK, against a stand-in for the daemon."""

import builtins
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edlz.client.cli import main
from edlz.client.images import base
from edlz.client.images.daemon import Address, Daemon, ImageError, LocalImage, look_up
from edlz.client.images.job_image import config_in_image, job_image
from edlz.client.images.recipe import MARK, own_base
from edlz.client.images.views import QuietView
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError, PeerUnavailable
from tests.docker_daemon import FakeDaemon, fake_daemon

JOB = {"model_def": "mnist.model.custom_model", "training_data": "/data", "job_name": "j"}


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    with fake_daemon() as found:
        found.add(own_base())
        monkeypatch.setenv("DOCKER_HOST", found.url)
        yield found


@pytest.fixture(autouse=True)
def _zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a zoo, no matter which user's settings and daemon there are."""
    for name in ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "DOCKER_CONTEXT", "EDLZ_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EDLZ_PROGRESS", "plain")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zoo" / "mnist").mkdir(parents=True)
    (tmp_path / "zoo" / "mnist" / "model.py").write_text("def custom_model(): ...\n")
    (tmp_path / "zoo" / "__pycache__").mkdir()
    (tmp_path / "zoo" / "__pycache__" / "x.pyc").write_text("x")


# ---------------------------------------------------------------- zoo init, build, push


def test_init_and_build_send_the_folder_and_tell_what_came_of_it(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["zoo", "init", "--model_zoo=zoo"]) == 0
    assert main(["zoo", "build", "--image=edlz:mnist", "--platform=linux/amd64", "--network=host", "."]) == 0
    ((asked, files),) = daemon.builds
    assert (asked["t"], asked["platform"], asked["networkmode"]) == ("edlz:mnist", "linux/amd64", "host")
    assert "zoo/mnist/model.py" in files
    assert not any("__pycache__" in name for name in files)
    assert files["Dockerfile"].startswith(f"{MARK} ")
    out = capsys.readouterr().out
    assert "step 2/2  COPY model_zoo /model_zoo\n" in out
    assert "built edlz:mnist  1.2 GB  linux/amd64" in out
    assert "\r" not in out
    assert "\x1b" not in out


def test_init_leaves_a_dockerfile_of_the_users_own_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "Dockerfile").write_text("FROM mine\n")
    assert main(["zoo", "init", "--model_zoo=zoo"]) == 2
    assert (tmp_path / "Dockerfile").read_text() == "FROM mine\n"
    assert "is left as it is" in capsys.readouterr().err
    (tmp_path / "Dockerfile").write_text(f"{MARK}\n")
    assert main(["zoo", "init", "--model_zoo=zoo"]) == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--model_zoo=zo"], '--model_zoo="zo" is no directory'),
        (["--model_zoo=.."], "lies outside of"),
        (["--model_zoo=zoo", "--local_pkg_dir=zoo"], "has no wheels"),
        (["--model_zoo=zoo", "--cluster_spec=spec.py"], '--cluster_spec="spec.py" is no file'),
        (["--model_zoo=zoo", "--base_image=a b"], '--base_image="a b" is no image'),
        (["--model_zoo=zoo", "--extra_pypi_index=a b"], "is no address"),
    ],
)
def test_init_refuses_what_cannot_be_built(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["zoo", "init", *arguments]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "Dockerfile").exists()


def test_a_failing_step_is_shown_with_its_last_lines_and_advice(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.build_stream = (
        {"stream": "Step 3/8 : RUN python -m pip install -r requirements.txt\n"},
        {"stream": " ---> Running in 12\n"},
        {"stream": "\x1b[91mERROR: No matching distribution found for pandsa\n\x1b[0m"},
        {
            "errorDetail": {"code": 1, "message": "returned 1"},
            "error": "The command '/bin/sh -c x' returned a non-zero code: 1",
        },
    )
    assert main(["zoo", "init", "--model_zoo=zoo"]) == 0
    assert main(["zoo", "build", "--image=edlz:mnist", "."]) == 1
    err = capsys.readouterr().err
    assert err == (
        "error: step 3/8  RUN python -m pip install -r requirements.txt failed: it ended with code 1\n"
        "  ERROR: No matching distribution found for pandsa\n"
        "help: see requirements.txt; for another index: --extra_pypi_index=URL\n"
    )


def test_a_build_has_the_pip_settings_and_certificates_of_this_machine(
    daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example.com/simple")
    monkeypatch.delenv("PIP_TRUSTED_HOST", raising=False)
    (tmp_path / "company.pem").write_text("-----BEGIN CERTIFICATE-----")
    assert main(["zoo", "init", "--model_zoo=zoo", "--ca_bundle=company.pem"]) == 0
    assert main(["zoo", "build", "--image=edlz:mnist", "."]) == 0
    job_image(JobConfig(**JOB, model_zoo="zoo", image_base=own_base(), ca_bundle="company.pem"), print)
    for (asked, files), name in zip(daemon.builds, ("company.pem", "ca_bundle.pem"), strict=True):
        assert json.loads(asked["buildargs"]) == {"PIP_INDEX_URL": "https://mirror.example.com/simple"}
        assert files[name] == "-----BEGIN CERTIFICATE-----"
        assert f'["{name}", "/tmp/ca/given.pem"]' in files["Dockerfile"]
    for flag in ("ca_bundle", "cluster_spec"):
        with pytest.raises(ConfigError, match="does not exist") as refused:
            job_image(
                JobConfig(**JOB, model_zoo="zoo", image_base=own_base(), **{flag: "compani.pem"}), print
            )
        assert refused.value.help == "nearest: company.pem"


@pytest.mark.parametrize("has_base", [True, False])
def test_a_password_for_the_index_goes_into_no_image(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], has_base: bool
) -> None:
    if not has_base:  # minutes, in vain
        daemon.images.clear()
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:hidden@mirror.example.com/simple")
    assert main(["zoo", "init", "--model_zoo=zoo"]) == 0
    assert main(["zoo", "build", "--image=edlz:mnist", "."]) == 2
    with pytest.raises(ConfigError, match="has a user name or a password in it"):
        job_image(JobConfig(**JOB, model_zoo="zoo", image_base=own_base()), print)
    assert daemon.builds == []
    said = capsys.readouterr().err
    assert "error: PIP_INDEX_URL has a user name or a password in it" in said
    assert "hidden" not in said


def test_an_answer_that_is_no_stream_is_the_daemons_word(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.build_status = 400
    daemon.build_stream = ({"message": "dockerfile parse error line 2: unknown instruction: RUNN"},)
    assert main(["zoo", "init", "--model_zoo=zoo"]) == 0
    assert main(["zoo", "build", "--image=edlz:mnist", "."]) == 1
    assert (
        "error: build edlz:mnist: dockerfile parse error line 2: unknown instruction: RUNN"
        in capsys.readouterr().err
    )


def test_an_image_of_another_platform_is_noticed(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.architecture = "arm64"
    assert main(["zoo", "init", "--model_zoo=zoo"]) == 0
    assert main(["zoo", "build", "--image=edlz:mnist", "."]) == 0
    assert "warning: edlz:mnist is linux/arm64: nodes of linux/amd64 cannot run it" in capsys.readouterr().err
    assert main(["zoo", "build", "--image=edlz:mnist", "--platform=linux/arm64", "."]) == 0
    assert capsys.readouterr().err == ""


def test_push_names_the_nearest_image_when_there_is_none(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.add("edlz:mnist")
    assert main(["zoo", "push", "edlz:mnst"]) == 1
    assert capsys.readouterr().err == (
        "error: the Docker daemon has no image edlz:mnst\nhelp: did you mean edlz:mnist?\n"
    )
    assert main(["zoo", "push", "edlz:mnist"]) == 0
    assert daemon.pushes == ["edlz:mnist"]


def test_a_refused_push_says_how_to_be_let_in(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.add("reg.example.com/u/edlz:x")
    daemon.push_stream = ({"error": "denied: requested access to the resource is denied"},)
    assert main(["zoo", "push", "reg.example.com/u/edlz:x"]) == 1
    assert "help: docker login" in capsys.readouterr().err


# ---------------------------------------------------------------- the daemon itself


def test_no_daemon_is_said_with_how_to_point_to_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "push", "edlz:x", "--docker_base_url=tcp://127.0.0.1:1"]) == PeerUnavailable.exit_code
    assert capsys.readouterr().err == (
        "error: no Docker daemon answers at tcp://127.0.0.1:1: Connection refused\n"
        "help: start Docker, or say where it is: DOCKER_HOST=unix:///path/docker.sock or tcp://host:2376\n"
    )


def test_a_certificate_needs_its_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "push", "edlz:x", f"--docker_tlscert={tmp_path / 'cert.pem'}"]) == 2
    assert "is no file" in capsys.readouterr().err


def test_without_the_sdk_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_docker(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "docker":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_docker)
    with pytest.raises(ConfigError) as caught:
        Daemon.connect()
    assert "docker>=7" in caught.value.help


def test_the_daemon_tells_of_images_and_its_platform(daemon: FakeDaemon) -> None:
    daemon.add("edlz:arm", "arm64")
    found = Daemon.connect()
    try:
        image = found.image("edlz:arm")
        assert image is not None
        assert image.platform == "linux/arm64"
        assert found.image("edlz:none") is None
        assert found.platform == "linux/amd64"
        assert found.names() == [own_base(), "edlz:arm"]
    finally:
        found.close()


def test_what_is_known_here_of_an_image(daemon: FakeDaemon) -> None:
    daemon.add("edlz:mnist", "arm64")
    assert look_up("edlz:mnist", Address()) == LocalImage("linux/arm64")
    assert look_up("edlz:mnst", Address()) == LocalImage("", ("edlz:mnist",))
    assert look_up("edlz:mnist", Address("tcp://127.0.0.1:1")) is None


# ---------------------------------------------------------------- the base


def test_our_own_base_is_built_once_if_edlz_runs_from_a_checkout(daemon: FakeDaemon) -> None:
    del daemon.images[own_base()]
    found = Daemon.connect()
    try:
        base.ensure_base(own_base(), found, QuietView(), "https://mirror.example.com/simple")
        base.ensure_base(own_base(), found, QuietView())
        base.ensure_base("other:1", found, QuietView())
    finally:
        found.close()
    ((asked, files),) = daemon.builds
    assert (asked["t"], asked["target"], asked["dockerfile"]) == (own_base(), "runtime", "docker/Dockerfile")
    assert "mirror.example.com" in asked["buildargs"]
    assert {"docker/Dockerfile", "core_ext/_wire.pyx", "services/configuration/job_config.py"} <= files.keys()
    assert not any(name.endswith(".so") for name in files)


def test_without_a_checkout_the_missing_base_is_an_error(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    del daemon.images[own_base()]
    monkeypatch.setattr(base.edlz.client.images, "__file__", str(tmp_path / "a" / "b" / "c.py"))
    found = Daemon.connect()
    try:
        with pytest.raises(ImageError, match="has no image"):
            base.ensure_base(own_base(), found, QuietView())
    finally:
        found.close()


# ---------------------------------------------------------------- images of jobs


def test_a_prefix_builds_the_model_into_an_image_of_its_own_and_pushes_it(daemon: FakeDaemon) -> None:
    config = JobConfig(**JOB, model_zoo="zoo", docker_image_prefix="reg.example.com/user/")
    said: list[str] = []
    name = job_image(config, said.append, QuietView())
    other = job_image(config, said.append, QuietView())
    assert name.startswith("reg.example.com/user/edlz:j-")
    assert name != other
    assert daemon.pushes == [name, other]
    files = daemon.builds[0][1]
    assert set(files) == {"Dockerfile", "model_zoo/mnist/model.py"}
    assert files["Dockerfile"].splitlines()[1] == f"FROM {own_base()}"
    assert said[0] == f"built {name} (linux/amd64)"
    assert said[1] == f"pushed {name}"


def test_the_same_files_make_the_same_context_so_layers_are_found_again(daemon: FakeDaemon) -> None:
    config = JobConfig(**JOB, model_zoo="zoo", image_base="edlz:ci")
    for _ in range(2):
        job_image(config, print, QuietView())
        (Path("zoo") / "mnist" / "model.py").touch()
    assert daemon.builds[0][1] == daemon.builds[1][1]
    assert daemon.pushes == []


def test_a_base_with_the_zoo_in_it_is_run_as_it_is() -> None:
    for zoo in ("/model_zoo", "/no/such/folder", ""):
        config = JobConfig(**JOB, image_base="reg.example.com/user/edlz:mnist", model_zoo=zoo)
        assert job_image(config, print) == "reg.example.com/user/edlz:mnist"
        assert config_in_image(config).model_zoo == zoo


def test_an_image_by_name_has_a_relative_zoo_at_its_root() -> None:
    config = JobConfig(**JOB, image_name="edlz:mnist", model_zoo="zoo")
    assert job_image(config, print) == "edlz:mnist"
    assert config_in_image(config).model_zoo == "/model_zoo"


@pytest.mark.parametrize(
    ("given", "flag", "inside", "sent"),
    [
        ({"model_file": "zoo/mnist/model.py"}, "model_file", "/model/model.py", "model/model.py"),
        ({"model_def": "zoo/wide"}, "model_def", "/model/wide", "model/wide/wide.py"),
        ({"model_def": "zoo/flat"}, "model_def", "/model/flat.py", "model/flat.py"),
        ({"model_def": "zoo/mnist/model.py"}, "model_def", "/model/model.py", "model/model.py"),
    ],
)
def test_a_model_by_its_path_goes_into_the_image(
    given: dict[str, str], flag: str, inside: str, sent: str, daemon: FakeDaemon
) -> None:
    Path("zoo/wide").mkdir()
    Path("zoo/wide/wide.py").write_text("")
    Path("zoo/flat.py").write_text("")
    config = JobConfig(
        training_data="/data",
        job_name="j",
        docker_image_prefix="gcr.io/project",
        **given,  # type: ignore[arg-type]
    )
    job_image(config, print, QuietView())
    assert sent in daemon.builds[0][1]
    assert getattr(config_in_image(config), flag) == inside


def test_spec_and_wheels_go_along(daemon: FakeDaemon) -> None:
    Path("spec.py").write_text("cluster = None\n")
    Path("build").mkdir()
    Path("build/edlz-1-py3-none-any.whl").write_text("w")
    config = JobConfig(
        **JOB, docker_image_prefix="r.example.com/u", cluster_spec="spec.py", local_pkg_dir="build"
    )
    job_image(config, print, QuietView())
    assert {"cluster_spec/spec.py", "packages/edlz-1-py3-none-any.whl"} <= daemon.builds[0][1].keys()
    assert config_in_image(config).cluster_spec == "spec.py"  # read here, by whoever submits the job


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "no image"),
        ({"image_name": "a", "image_base": "b"}, "drop one"),
        ({"image_name": "a", "docker_image_prefix": "b"}, "drop one"),
        ({"image_name": "a", "push_image": True}, "--docker_image_prefix"),
        ({"image_name": "A B"}, "no image"),
        ({"docker_image_prefix": "https://reg"}, "no image"),
        ({"docker_image_prefix": "reg.example.com/u", "model_zoo": "/model_zoo"}, "no directory"),
        ({"docker_image_prefix": "reg.example.com/u", "cluster_spec": "nope.py"}, "does not exist"),
        ({"docker_image_prefix": "reg.example.com/u", "local_pkg_dir": "zoo"}, "no wheels"),
    ],
)
def test_flags_that_name_no_image_or_two_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        job_image(JobConfig(**{**JOB, **given}), print, QuietView())
    assert told in f"{caught.value.message} {caught.value.help}"
