"""A store elsewhere serves a whole training job: a real S3 server, with kills and a file that somebody replaces."""

import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from edlz.services.errors import ConfigError, DataError
from edlz.services.inputs.data import RecordSource
from edlz.services.inputs.listing import list_data
from edlz.services.protocol.plan import TaskRange
from tests.processes import END_S, HandJob, wait_for
from tests.s3_place import s3_place
from tests.same_rows import MODEL, write_rows

pytestmark = [pytest.mark.fault, pytest.mark.slow]

ROWS = 20_000
NAMES = ("rows.recordio", "rows.csv", "rows.parquet")
FLAGS = (
    "--minibatch_size=100",
    "--records_per_task=1000",
    "--grads_to_wait=2",
    "--worker_threads=1",
    "--num_epochs=2",
    "--embedding_threshold_bytes=0",
    "--log_level=DEBUG",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    write_rows(folder, ROWS)
    (folder / "model.py").write_text(MODEL)
    return folder


@pytest.fixture
def place(data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with s3_place(monkeypatch) as bucket:
        import s3fs

        for name in NAMES:
            s3fs.S3FileSystem().put_file(str(data / name), f"{bucket}/{name}")
        yield bucket


def digest(folder: Path, data: Path, given: str, *, kills: bool = False) -> str:
    flags = (*FLAGS, f"--model_file={data}/model.py", f"--training_data={given}")
    folder.mkdir()
    with HandJob(folder, *flags, partitions=2).start(2) as job:
        gone: tuple[str, ...] = ()
        if kills:
            wait_for(lambda: "Task:4 completed" in job.log("master"), "Task:4 completed", END_S)
            job.kill("worker-0")
            gone = ("worker-0",)
            job.start_worker(9)
        status = job.finish(without=gone)
        for name in job.processes:
            assert not any(secret in job.log(name) for secret in ("a-secret", "a-name", "Signature"))
    assert status.state == "Succeeded"
    return status.digest


@pytest.mark.parametrize("name", NAMES)
def test_a_job_reads_from_s3_what_it_would_read_here(
    name: str, data: Path, place: str, tmp_path: Path
) -> None:
    here = digest(tmp_path / "here", data, str(data / name))
    assert digest(tmp_path / "there", data, f"{place}/{name}", kills=name == "rows.csv") == here


def test_a_file_that_was_replaced_is_refused_by_name(place: str) -> None:
    import s3fs

    files = s3fs.S3FileSystem()
    for name in NAMES:
        listed = list_data(f"{place}/{name}")
        assert listed.source.files[0].mark
        source = RecordSource(listed.source)
        content = files.cat_file(f"{place}/{name}")
        files.pipe_file(f"{place}/{name}", content[:-9] + b"somebody!")
        with pytest.raises(DataError, match=f"{name} has another content than when the job was planned"):
            source.read(TaskRange(name=f"{place}/{name}", first=ROWS - 10, count=10))
        files.pipe_file(f"{place}/{name}", content)  # put back: it is the one that was planned with
        assert len(source.read(TaskRange(name=f"{place}/{name}", first=ROWS - 10, count=10))) == 10


def test_folders_patterns_and_what_is_not_there(place: str) -> None:
    assert [shard.name for shard in list_data(f"{place}/*.[ct]*").shards] == [f"{place}/rows.csv"]
    for missing in (f"{place}/no.csv", "s3://no-bucket/no.csv"):
        with pytest.raises(ConfigError, match="does not exist"):
            list_data(missing)


def test_a_bucket_without_rights_is_told_in_plain_words(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    server = os.environ["AWS_ENDPOINT_URL"]
    ask(f"{server}/moto-api/reset-auth", b"0")  # from now on it looks who asks
    try:
        for name, told in (
            ("AWS_SECRET_ACCESS_KEY", "permission is denied"),
            ("AWS_ACCESS_KEY_ID", "no credentials are found"),
        ):
            s3fs.S3FileSystem.clear_instance_cache()
            if "credentials" in told:
                monkeypatch.delenv(name)
                monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
                monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
                monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
            with pytest.raises(DataError, match=told) as error:
                list_data(f"{place}/rows.csv")
            assert "AWS_ACCESS_KEY_ID" in error.value.help
            assert "a-secret" not in f"{error.value.message} {error.value.help}"
    finally:
        ask(f"{server}/moto-api/reset-auth", b"inf")


def ask(url: str, data: bytes) -> None:
    request = urllib.request.Request(url, data, {"Content-Type": "text/plain"})
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200
