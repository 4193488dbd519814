"""The Dockerfile as text, and the files that are sent with it."""

import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from edlz.client.images.base import pip_settings
from edlz.client.images.context import pack
from edlz.client.images.recipe import MARK, Recipe, base_of, check_image_name, dockerfile
from edlz.services.errors import ConfigError

DOCKER = Path(__file__).parents[3] / "docker"


def test_the_dockerfile_of_a_zoo() -> None:
    text = dockerfile(Recipe(base_image="edlz:dev", model_zoo="model_zoo"))
    lines = text.splitlines()
    assert lines[0].startswith(MARK)
    assert lines[1] == "FROM edlz:dev"
    assert 'COPY ["Dockerfile", "model_zoo/requirements.tx[t]", "/tmp/zoo/"]' in lines
    assert 'COPY --chown=1000:1000 ["model_zoo", "/model_zoo"]' in lines
    assert lines[-2:] == ["WORKDIR /", "USER 1000:1000"]
    assert "'edlz==" in text


def test_requirements_come_before_models_so_that_a_changed_model_installs_nothing() -> None:
    text = dockerfile(Recipe(base_image="edlz:dev", model_zoo="."))
    assert text.index('"requirements.tx[t]"') < text.index('[".", "/model_zoo"]')


def test_wheels_replace_an_edlz_of_the_same_version() -> None:
    text = dockerfile(Recipe(base_image="edlz:dev_allreduce", model_zoo="model_zoo", local_pkg_dir="build"))
    assert 'COPY --chown=1000:1000 ["build/*.whl", "/tmp/edlz/"]' in text
    assert "--force-reinstall" in text
    assert "'edlz==" not in text


def test_index_and_spec() -> None:
    text = dockerfile(
        Recipe(
            base_image="reg.example.com:5000/user/edlz:ci",
            cluster_spec="specs/spec.py",
            extra_pypi_index="https://mirror.example.com/simple",
        )
    )
    assert "ARG PIP_EXTRA_INDEX_URL=https://mirror.example.com/simple\n" in text
    assert '["specs/spec.py", "/cluster_spec/spec.py"]' in text


def test_pip_takes_settings_as_build_arguments_and_trusts_what_it_is_given() -> None:
    lines = dockerfile(Recipe(base_image="edlz", model_zoo="zoo")).splitlines()
    assert {"ARG PIP_INDEX_URL", "ARG PIP_TRUSTED_HOST"} <= set(lines)
    assert not any("PIP_CERT" in line for line in lines)
    lines = dockerfile(Recipe(base_image="edlz", model_zoo="zoo", ca_bundle="company.pem")).splitlines()
    (trusted,) = [number for number, line in enumerate(lines) if line.startswith("ARG PIP_CERT=")]
    first_pip = min(number for number, line in enumerate(lines) if "pip install" in line)
    assert lines[trusted - 2] == 'COPY --chown=1000:1000 ["company.pem", "/tmp/ca/given.pem"]'
    assert trusted < first_pip


@pytest.mark.parametrize("given", ["", "-----BEGIN CERTIFICATE-----\nours\n-----END CERTIFICATE-----\n"])
def test_the_steps_of_our_images_reach_the_index_that_they_are_told(tmp_path: Path, given: str) -> None:
    (tmp_path / "ca.pem").write_text(given or (DOCKER / "no_certificates.pem").read_text())
    names = ["UV_DEFAULT_INDEX", "UV_INSECURE_HOST", "PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"]
    script = f"set -eu; . {DOCKER}/package_index.sh; " + "; ".join(f'echo "${{{name}:-}}"' for name in names)
    arguments = {
        "PIP_INDEX_URL": "https://mirror.example.com/simple",
        "PIP_TRUSTED_HOST": "mirror.example.com",
    }
    found = {"PATH": os.environ["PATH"], "CA_CERTIFICATES": str(tmp_path / "ca.pem"), **arguments}
    bundle = tmp_path / "bundle.pem"
    script = script.replace("set -eu", f"set -eu; CA_ALL={bundle}")
    done = subprocess.run(["sh", "-c", script], env=found, capture_output=True, text=True, check=True)
    index, host, *certificates = done.stdout.splitlines()
    assert (index, host) == tuple(arguments.values())
    assert certificates == [str(bundle) if given else ""] * 3
    assert not given or bundle.read_text().endswith(given)


@pytest.mark.parametrize("is_given", [True, False])
def test_the_compiler_comes_from_where_the_given_certificates_lead(tmp_path: Path, is_given: bool) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n" if is_given else "")
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("cat", "dirname", "grep"):
        (tools / tool).symlink_to(str(shutil.which(tool)))
    for missing in ("apt-get", "python3", "rm"):  # python3 has no headers
        (tools / missing).write_text(
            f'#!/bin/sh\necho "{missing} $*" >>{tmp_path}/asked\n[ {missing} != python3 ]\n'
        )
        (tools / missing).chmod(0o755)
    environ = {
        "PATH": str(tools),
        "CA_CERTIFICATES": str(tmp_path / "ca.pem"),
        "CA_ALL": str(tmp_path / "all.pem"),
    }
    subprocess.run(["/bin/sh", DOCKER / "install_compiler.sh"], env=environ, check=True)
    asked = [line for line in (tmp_path / "asked").read_text().splitlines() if line.startswith("apt-get")]
    trusted = f"-oAcquire::https::CaInfo={tmp_path}/all.pem "
    assert [line.startswith(f"apt-get {trusted}") for line in asked] == [is_given] * 2
    assert asked[0].endswith("update -qq")
    assert asked[1].endswith("gcc libc6-dev python3-dev")


def test_certificates_are_there_before_the_first_step_that_needs_the_network() -> None:
    lines = (DOCKER / "Dockerfile").read_text().splitlines()
    stages = "\n".join(lines).split("\nFROM ")[1:]
    for stage in stages:
        for step in ("install_compiler.sh", "make_venv.sh", "install_tools.sh", "gen_dataset.sh"):
            for before in [stage[: found.start()] for found in re.finditer(rf"^RUN .*{step}", stage, re.M)]:
                assert "COPY ${CA_BUNDLE} " in before, step
                assert "package_index.sh" in before, step


@pytest.mark.parametrize("user", ["me:secret@", "token@", ":secret@"])
def test_an_index_with_a_password_gets_into_no_image(user: str) -> None:
    index = f"https://{user}mirror.example.com/simple"
    with pytest.raises(
        ConfigError, match=r"^--extra_pypi_index has a user name or a password in it"
    ) as refused:
        dockerfile(Recipe(base_image="edlz", extra_pypi_index=index))
    assert "secret" not in refused.value.message + refused.value.help.replace("docker build --secret", "")
    with pytest.raises(ConfigError, match=r"^PIP_INDEX_URL has a user name or a password in it") as refused:
        pip_settings({"PIP_INDEX_URL": index})
    assert refused.value.help.startswith("set PIP_INDEX_URL= for pip's own index")
    settings = {"PIP_INDEX_URL": "https://mirror.example.com/a@b", "PIP_TRUSTED_HOST": "mirror.example.com"}
    assert pip_settings(settings) == settings


@pytest.mark.parametrize(
    "name",
    ["edlz", "edlz:mnist", "reg.example.com/user/edlz:a-1", "localhost:5000/e/f:x", "a@sha256:" + "0" * 64],
)
def test_names_of_images(name: str) -> None:
    assert check_image_name(name, "image") == name
    assert base_of(f"# FROM x\nARG A=1\nFROM --platform=linux/amd64 {name} AS a\n") == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Edlz:x",
        "edlz:",
        "edlz mnist",
        "https://a/b",
        "a:b:c",
        "edlz\nRUN x",
        "/a",
        "a" * 300,
        "a._b",
        "a___b",
    ],
)
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(ConfigError, match="is no image"):
        dockerfile(Recipe(base_image=name))


@pytest.mark.parametrize("index", ["a b", "https://x\nRUN y", "$HOME", 'https://x"'])
def test_what_is_no_index(index: str) -> None:
    with pytest.raises(ConfigError, match="is no address"):
        dockerfile(Recipe(base_image="edlz", extra_pypi_index=index))


def test_a_path_cannot_add_an_instruction() -> None:
    with pytest.raises(ConfigError, match="cannot stand"):
        dockerfile(Recipe(base_image="edlz", model_zoo='zoo"]\nRUN x'))


def test_the_context_has_the_same_bytes_whoever_packs_it(tmp_path: Path) -> None:
    contents = []
    for name, mode, when in (("a", 0o600, 1_000_000_000), ("b", 0o644, 1_700_000_000)):
        folder = tmp_path / name
        (folder / "__pycache__").mkdir(parents=True)
        (folder / "__pycache__" / "m.pyc").write_text("x")
        for file in ("m.py", "run.sh"):
            (folder / file).write_text("x")
            (folder / file).chmod(mode)
            os.utime(folder / file, (when, when))
        (folder / "run.sh").chmod(mode | 0o100)
        with pack("FROM edlz\n", {"model_zoo": folder}) as context:
            contents.append(context.read())
            context.seek(0)
            with tarfile.open(fileobj=context) as tar:
                modes = {entry.name: entry.mode for entry in tar.getmembers()}
    assert contents[0] == contents[1]
    assert modes == {
        "Dockerfile": 0o644,
        "model_zoo": 0o755,
        "model_zoo/m.py": 0o644,
        "model_zoo/run.sh": 0o755,
    }


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        pack("FROM edlz\n", {"model_zoo": tmp_path / "nowhere"})
