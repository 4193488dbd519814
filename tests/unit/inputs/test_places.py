"""Files that lie elsewhere: read like those that lie here, refused by name if they have changed, and nothing secret is told."""

import http.server
import itertools
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edlz.services.configuration.data_addresses import absolute_names, check_address
from edlz.services.errors import ConfigError, DataError
from edlz.services.inputs.data import RecordSource
from edlz.services.inputs.listing import Listed, list_data
from edlz.services.inputs.places import remote_bytes, store
from edlz.services.inputs.places.remote_bytes import RemoteBytes, open_stream
from edlz.services.inputs.places.store import Store, Stored, look_elsewhere
from edlz.services.inputs.reading import spans
from edlz.services.inputs.reading.records import Columns
from edlz.services.protocol.plan import TaskRange
from tests.rights import without_rights
from tests.same_rows import FORMATS, write_rows

fsspec = pytest.importorskip("fsspec")

ROWS = 3000
_numbers = itertools.count()


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    write_rows(folder, ROWS)
    return folder


@pytest.fixture
def place() -> Iterator[str]:
    """Return the address of an empty folder in memory."""
    folder = f"/place-{next(_numbers)}"
    yield f"memory://{folder}"
    files = fsspec.filesystem("memory")
    if files.exists(folder):
        files.rm(folder, recursive=True)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_bytes, "BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr(store, "_FIRST_PAUSE_S", 0.001)


def put(address: str, data: bytes) -> str:
    with fsspec.open(address, "wb") as file:
        file.write(data)
    return address


def records(listed: Listed, first: int, count: int) -> list[object]:
    source = RecordSource(listed.source)
    try:
        found = source.read(TaskRange(name=listed.shards[0].name, first=first, count=count))
    finally:
        source.close()
    return found.rows() if isinstance(found, Columns) else list(found)


@pytest.mark.parametrize("name", FORMATS)
def test_any_format_elsewhere_has_the_records_that_it_has_here(name: str, rows: Path, place: str) -> None:
    address = put(f"{place}/{name}", (rows / name).read_bytes())
    here, there = list_data(str(rows / name)), list_data(address)
    assert [shard.name for shard in there.shards] == [address]
    assert there.source.columns == here.source.columns
    for first, count in ((0, 10), (1500, 700), (ROWS - 1, 1)):
        assert repr(records(there, first, count)) == repr(records(here, first, count))


@pytest.mark.parametrize("name", FORMATS)
def test_another_file_in_its_place_is_refused_by_name(name: str, rows: Path, place: str) -> None:
    data = (rows / name).read_bytes()
    listed = list_data(put(f"{place}/{name}", data))
    put(f"{place}/{name}", data)  # of the same length, even of the same content: it has another time
    with pytest.raises(DataError, match=f"{name} has another content than when the job was planned"):
        records(listed, 0, 10)


def test_a_file_that_changes_while_it_is_open_is_refused_by_name(
    rows: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "_LEAST_BYTES", 4 << 10)
    data = (rows / "rows.tfrecord").read_bytes()
    listed = list_data(put(f"{place}/rows.tfrecord", data))
    source = RecordSource(listed.source)
    task = TaskRange(name=listed.shards[0].name, first=0, count=10)
    source.read(task)
    put(f"{place}/rows.tfrecord", data[:-20] + data[:20])
    with pytest.raises(DataError, match=r"rows.tfrecord has another content .*records 2900 to 2999"):
        source.read(TaskRange(name=task.name, first=2900, count=100))


def test_folders_patterns_and_several_addresses(rows: Path, place: str) -> None:
    data = (rows / "rows.csv").read_bytes()
    for name in ("b.csv", "a.csv", "_SUCCESS", ".hidden", "c.csv~", "deep/d.csv"):
        put(f"{place}/{name}", data)
    told: list[str] = []
    listed = list_data(place, tell=told.append)
    assert [shard.name for shard in listed.shards] == [f"{place}/a.csv", f"{place}/b.csv"]
    assert len(told) == 2
    assert "the folder deep in it is left out" in told[0]
    assert [shard.name for shard in list_data(f"{place}/[ab].csv").shards] == [
        f"{place}/a.csv",
        f"{place}/b.csv",
    ]
    assert [shard.name for shard in list_data(f"MEMORY{place[6:]}/b.csv").shards] == [f"{place}/b.csv"]
    both = list_data(f"{place}/b.csv,{rows}/rows.csv")
    assert [shard.name for shard in both.shards] == [f"{place}/b.csv", f"{rows}/rows.csv"]


@pytest.mark.parametrize(
    ("given", "message", "advice"),
    [
        ("{place}/no.csv", 'no.csv" does not exist', "that store's own tools"),
        ("{place}/*.nothing", "fits no file", "that store's own tools"),
        ("s4://bucket/a.csv", "s4:// is no kind of place that is known", "did you mean"),
        (
            "wandb://bucket/a.csv",
            "wandb:// needs a package that is not installed",
            "pip install 'edlz[data]'",
        ),
    ],
)
def test_what_is_not_there(given: str, message: str, advice: str, place: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        list_data(given.format(place=place))
    assert advice in error.value.help


def test_without_fsspec_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"s3://b/a.csv needs fsspec, which is not installed") as error:
        list_data("s3://b/a.csv")
    assert error.value.help == "pip install 'edlz[data]' s3fs"


@pytest.mark.parametrize(
    "given",
    [
        "s3://a-name:a-secret@bucket/a.csv",
        "a.csv,https://a-secret@host/a.csv",
        "https://a-name:with,a-secret@host/a.csv",
        "https://host/a.csv?X-Amz-Signature=a-secret",
        "https://host/a.csv?version=3&sig=a-secret",
    ],
)
def test_credentials_in_an_address_are_refused_and_not_repeated(given: str) -> None:
    with pytest.raises(ConfigError, match="has credentials in an address") as error:
        check_address(given, "--training_data")
    assert "a-secret" not in f"{error.value.message} {error.value.help}"
    with pytest.raises(ConfigError, match="has credentials in an address"):
        list_data(given)


def test_rights_to_files_of_this_machine_are_no_credentials(tmp_path: Path) -> None:
    fsspec.filesystem("file")
    with without_rights(tmp_path / "closed"), pytest.raises(DataError, match="Permission denied") as error:
        list_data(f"file://{tmp_path}/closed/a.csv")
    assert "chmod a+rX" in error.value.help


def test_addresses_stay_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_names("s3://b/x@2/a.csv") == "s3://b/x@2/a.csv"
    assert absolute_names("a.csv, s3://b/a.csv") == f"{tmp_path}/a.csv,s3://b/a.csv"
    many = [f"part-{number:05d}.csv" for number in range(500)]  # more letters than a path may have
    assert absolute_names(",".join(many)) == ",".join(f"{tmp_path}/{name}" for name in many)
    check_address("s3://b/x@2/a.csv,data/a@b.csv", "--training_data")


def test_reading_on_asks_ahead_and_a_range_is_one_request(place: str) -> None:
    data = bytes(range(256)) * 400
    stored = look_elsewhere(put(f"{place}/data", data))
    asked = Asked(stored.name)
    content = RemoteBytes(stored, asked)
    assert content[5000:9000] == data[5000:9000]
    assert asked.ranges == [(4096, 9216)]
    assert content[9000:9100] == data[9000:9100]
    assert asked.waited(2)  # what follows, by another thread
    assert asked.ranges[1] == (9216, 9216 + 1024 * remote_bytes.AHEAD_BLOCKS)
    assert content[9300:12000] == data[9300:12000]
    assert content[0:] == data
    assert open_stream(content).read() == data


def test_a_block_that_could_not_be_read_is_asked_for_again(place: str) -> None:
    stored = look_elsewhere(put(f"{place}/data", bytes(5000)))
    content = RemoteBytes(Stored(stored.name, 6000, stored.mark))
    for _ in range(2):
        with pytest.raises(DataError, match="data: the server gave"):
            content[4500:6000]
    assert content[0:100] == bytes(100)


@pytest.mark.parametrize(
    ("error", "told", "tries"),
    [
        (PermissionError("Access Denied: a-secret"), "permission is denied", 1),
        (ConnectionResetError("a-secret"), "cannot be reached", 4),
        (RuntimeError("a-secret"), "cannot be read: RuntimeError", 1),
        (FileNotFoundError("a-secret"), "does not exist", 1),
    ],
)
def test_refusals_are_told_in_our_words(
    error: Exception, told: str, tries: int, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def info(path: str) -> None:
        asked.append(path)
        raise error

    monkeypatch.setattr(fsspec.filesystem("memory", use_listings_cache=False), "info", info, raising=True)
    with pytest.raises(DataError, match=told) as found:
        Store(f"{place}/data").look(f"{place}/data")
    assert len(asked) == tries
    assert "a-secret" not in f"{found.value.message} {found.value.help}"


class Asked(Store):
    """A store that keeps which ranges were asked of it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ranges: list[tuple[int, int]] = []
        self._more = threading.Condition()

    def read(self, name: str, start: int, end: int) -> bytes:
        with self._more:
            self.ranges.append((start, end))
            self._more.notify_all()
        return super().read(name, start, end)

    def waited(self, count: int) -> bool:
        with self._more:
            return self._more.wait_for(lambda: len(self.ranges) >= count, timeout=30)


def test_orders_elsewhere(rows: Path, place: str) -> None:
    address = put(f"{place}/rows.recordio", (rows / "rows.recordio").read_bytes())
    listed = list_data(address)
    order = np.array([3, 0, 2, 1])
    task = TaskRange(name=address, first=5, count=4)
    found = RecordSource(listed.source).read(task, order)
    plain = records(listed, 5, 4)
    assert found == [plain[place] for place in order]


class _Web(http.server.BaseHTTPRequestHandler):
    """Gives `/rows.csv` by ranges, `/whole.csv` only as a whole, and nothing else to anybody."""

    data = b"x,y\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(2000))

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if self.path not in ("/rows.csv", "/whole.csv"):
            self.send_error(int(self.path[1:4]))
            return
        asked = self.headers.get("Range", "") if self.path == "/rows.csv" else ""
        first, last = asked.removeprefix("bytes=").split("-") if asked else ("0", str(len(self.data) - 1))
        part = self.data[int(first) : int(last) + 1]
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("ETag", '"one"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(part)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Web)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_web_server_gives_ranges(web: str) -> None:
    listed = list_data(f"{web}/rows.csv")
    assert listed.source.files[0].mark == "one"
    assert records(listed, 1990, 2) == [{"x": 1990, "y": 1990**2}, {"x": 1991, "y": 1991**2}]


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("403.csv", r"permission is denied \(the server answers 403\)"),
        ("401.csv", r"permission is denied \(the server answers 401\)"),
        ("404.csv", "does not exist"),
        ("503.csv", "the server answers 503"),
    ],
)
def test_what_a_web_server_does_not_give(path: str, told: str, web: str) -> None:
    with pytest.raises(DataError, match=told):
        list_data(f"{web}/{path}")


def test_a_web_server_gives_no_ranges(web: str) -> None:
    content = RemoteBytes(look_elsewhere(f"{web}/whole.csv"))
    with pytest.raises(DataError, match=r"whole\.csv: the server gives whole files only"):
        content[5000:6000]


def test_nobody_is_there() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    with pytest.raises(DataError, match="cannot be reached"):
        list_data(f"http://127.0.0.1:{port}/rows.csv")


def test_a_place_is_asked_once_what_a_file_is_like(
    place: str, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a job is planned, whatever looks at the file for whatever reason."""
    for name in FORMATS:
        put(f"{place}/{name}/{name}", (rows / name).read_bytes())
    asked: list[str] = []
    look = store.Store.look

    def counted(self: store.Store, name: str) -> store.Stored:
        asked.append(name)
        return look(self, name)

    monkeypatch.setattr(store.Store, "look", counted)
    for name in FORMATS:
        list_data(f"{place}/{name}")
        assert asked == [f"{place}/{name}/{name}"], name
        asked.clear()
