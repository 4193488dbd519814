"""The status page of a master that serves, and the report that it leaves."""

import asyncio
import dataclasses
import json
import re
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError
from edlz.services.master.page.content import Content
from edlz.services.master.page.encoded import Encoded
from edlz.services.master.page.rendering import render
from edlz.services.master.page.status_page import STATUS_PORT, StatusPage, bound
from edlz.services.master.page.task_map import MOST_CELLS, task_map
from edlz.services.master.service import MasterService, serve_master
from edlz.services.process.runtime import Stop
from edlz.services.protocol.job_status import JobStatus
from edlz.services.protocol.ledger import TaskSet
from tests.builders import settings, settings_in
from tests.shown_pages import content

MOST_BYTES = 80_000


def got(address: str) -> tuple[bytes, dict[str, str]]:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return answer.read(), dict(answer.headers)


def asked(config: JobConfig, *paths: str) -> tuple[JobStatus, list[tuple[bytes, dict[str, str]]]]:
    """Let a master begin, tell one event, and end; return its status, and what its page answered."""
    found, stop = [], Stop()
    seen: list[JobStatus] = []

    async def attend(service: MasterService) -> None:
        service.announce("worker", "worker-1 lost: killed.")
        seen.append(service.status())
        for path in paths:
            found.append(await asyncio.to_thread(got, service.status().page + path))
        stop.set(0, "the test is over")

    assert asyncio.run(serve_master(config, stop, attend)) == 0
    return seen[0], found


def test_a_master_answers_browsers_and_scripts(tmp_path: Path) -> None:
    config = settings_in(tmp_path, status_port="0")
    status, (page, told, later, health) = asked(
        config, "/", "/api/status", "/api/status?since=9999999999", "/healthz"
    )
    assert re.fullmatch(r"http://localhost:\d+", status.page)
    assert b"worker-1 lost: killed." in page[0]
    assert "default-src 'none'" in page[1]["Content-Security-Policy"]
    body = json.loads(told[0])
    assert body["api"] == 1
    assert [event["text"] for event in body["events"]] == ["worker-1 lost: killed."]
    assert json.loads(later[0])["events"] == []
    assert json.loads(later[0])["seq"] == body["seq"] == body["events"][-1]["seq"]
    assert health[0] == b"ok\n"


def test_the_page_of_a_group_shows_ranks_and_no_server() -> None:
    shown = content(workers=2)
    workers = (msgspec.structs.replace(shown.status.workers[0], rank=1), *shown.status.workers[1:])
    status = msgspec.structs.replace(shown.status, workers=workers, is_allreduce=True, generation=(2, 3))
    tree = dataclasses.replace(shown, status=status).tree()
    page = render(tree, is_report=True).decode()
    assert '<section aria-labelledby="h-ps" hidden>' in page
    assert f"<td>{workers[0].id}, rank 1</td>" in page
    assert f"<td>2.3</td><td>worker-{workers[0].id}</td>" in page
    assert tree["ps"] == []
    assert tree["group"]["members"] == [workers[0].id]
    assert list(tree["workers"][0]["step_s"]) == ["read", "compute", "send", "sum", "wait"]
    assert tree["workers"][0]["step_bytes"] == {"in": 0, "out": 0}
    assert '<th scope="col">send</th>' in page
    assert '<th scope="col">pull</th>' not in page
    assert (
        json.loads(Encoded(dataclasses.replace(shown, status=status)).json(0))["workers"] == tree["workers"]
    )
    with_servers = render(shown.tree(), is_report=True).decode()
    assert '<section aria-labelledby="h-ps">' in with_servers
    assert '<th scope="col">pull</th>' in with_servers
    assert '<section aria-labelledby="h-group" hidden>' in with_servers


def test_the_report_is_there_at_the_end_and_names_no_address(tmp_path: Path) -> None:
    config = settings_in(tmp_path, status_port="none")
    status, _ = asked(config)
    assert status.page == ""
    report = (config.job_directory / "report.html").read_text()
    assert "worker-1 lost: killed." in report
    assert not re.findall(r"(?:src|href)=\"(?!#)[^\"]*\"|url\(|@import", report)
    assert "connect-src 'none'" in report.replace("&#x27;", "'")
    assert json.loads((config.job_directory / "status.json").read_text())["page"] == ""


def test_a_disk_that_is_full_costs_no_more_than_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = settings_in(tmp_path, status_port="none")
    (config.job_directory / "report.html").mkdir(parents=True)  # so that nothing can take its place
    asked(config)
    assert "report.html could not be written" in caplog.text


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        with pytest.raises(ConfigError, match=f"port {port} is in use"):
            bound(settings(status_port=port))


def test_without_a_wish_it_is_the_usual_port_or_a_free_one() -> None:
    first, second = bound(settings()), bound(settings())
    assert first is not None
    assert second is not None
    with first, second:
        ports = {each.getsockname()[1] for each in (first, second)}
        assert len(ports) == 2
        assert second.getsockname()[1] != STATUS_PORT
        assert {each.getsockname()[0] for each in (first, second)} == {"127.0.0.1"}
    assert bound(settings(status_port="none")) is None


def test_many_watchers_cost_one_look() -> None:
    looks = 0

    def look() -> Content:
        nonlocal looks
        looks += 1
        return content()

    async def work() -> None:
        listening = bound(settings(status_port="0"))
        assert listening is not None
        page = StatusPage(listening, look)
        serving = asyncio.create_task(page.run(), name="page")
        answers = await asyncio.gather(
            *(asyncio.to_thread(got, f"{page.address}/api/status?since={n}") for n in range(7))
        )
        assert [len(json.loads(body)["events"]) for body, _ in answers] == [6, 5, 4, 3, 2, 1, 0]
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        page.close()

    asyncio.run(work())
    assert looks <= 3, "one in two seconds"


def test_one_file_that_is_small_and_has_its_tables_without_a_script() -> None:
    tree = content().tree()
    page = render(tree, is_report=False).decode()
    data = page.index('<script type="application/json"')
    end = page.index("</script>", data)
    assert len(page) - (end - data) < MOST_BYTES
    assert page.count("</script>") == 2, "no text of the job ends a script"
    assert "<td>worker-1 lost: killed by signal 9 (SIGKILL). Task 238 goes to another worker.</td>" in page
    assert "<td>Pending: 0/6 nodes: Insufficient cpu</td>" in page
    assert "<b>&amp;</b>" not in page
    assert json.loads(page[page.index(">", data) + 1 : end])["status"] == json.loads(json.dumps(tree))


def test_of_a_job_without_an_end_there_is_a_count_and_no_bar() -> None:
    shown = content()
    status = msgspec.structs.replace(shown.status, is_endless=True, ratio=1.0, records=70_800)
    page = render(dataclasses.replace(shown, status=status).tree(), is_report=False).decode()
    head = page[page.index("<header>") : page.index("</header>")]
    assert re.search(r'<progress id="bar"[^>]* hidden>', head)
    assert "70,800 records   v" in head
    assert "%" not in head
    assert f"<title>{status.name} Training 70,800 records</title>" in page


def test_what_scripts_read_is_the_same_bytes_or_whole() -> None:
    seen = content(mode="async")
    text = Encoded(seen).json(0)
    assert [text.count(b'"%s":[' % name) for name in (b"events", b"workers", b"ps")] == [1, 1, 1]
    whole: dict[str, Any] = json.loads(text)
    assert whole == {**json.loads(json.dumps(seen.tree())), "look": 1}
    assert len(whole["curves"]["at"]) == len(seen.rows)
    assert whole["curves"]["staleness_p95"][0] is not None


FIELDS = {
    "": "api seq job progress loss evaluations tasks workers ps group events",
    "job": "name state reason where strategy mode started_at",
    "progress": "ratio epoch epochs records records_total minibatches duplicates_ignored version records_per_s eta_s stalled_s",
    "tasks": "todo leased done failed_attempts",
    "workers": "id state task records_per_s restarts step_s note",
    "ps": "id state rows memory_bytes checkpoint_version",
    "events": "seq at kind text",
    "evaluations": "version metrics",
}


@pytest.mark.parametrize("name", FIELDS)
def test_fields_that_scripts_rely_on_stay(name: str) -> None:
    tree: Any = json.loads(Encoded(content()).json())
    found = tree[name] if name else tree
    found = found[0] if isinstance(found, list) else found
    assert set(FIELDS[name].split()) <= found.keys()


def test_tasks_are_cells_and_many_tasks_are_a_thousand_cells() -> None:
    few = task_map(5, TaskSet((0, 2)), [2, 3], TaskSet((1, 3)))
    assert (few["done_map"], few["marks"], few["per_cell"]) == ("dd000", "-rbl-", 1)
    many = task_map(10_500, TaskSet((0, 5000, 5005, 5006)), [7000], TaskSet((10_499, 10_500)))
    done, marks = str(many["done_map"]), str(many["marks"])
    assert len(done) == len(marks) <= MOST_CELLS
    assert many["per_cell"] == 11
    assert done.startswith("d" * 454)
    assert done[454] == "5"  # 6 of 11 before 5000, none after; or 1 more
    assert done[455] in "01"
    assert marks[7000 // 11] == "l"
    assert marks[-1] == "r"
    assert task_map(0, TaskSet(), [], TaskSet())["done_map"] == ""
    assert task_map(10, TaskSet((5, 20)), [15], TaskSet((9, 30)))["done_map"] == "00000ddddd"


def test_who_has_seen_it_already_gets_a_few_bytes() -> None:
    async def work() -> None:
        listening = bound(settings(status_port="0"))
        assert listening is not None
        page = StatusPage(listening, content)
        serving = asyncio.create_task(page.run(), name="page")
        first = json.loads((await asyncio.to_thread(got, f"{page.address}/api/status"))[0])
        again = await asyncio.to_thread(got, f"{page.address}/api/status?look={first['look']}")
        assert json.loads(again[0]) == {"api": 1, "look": first["look"], "unchanged": True}
        other = await asyncio.to_thread(got, f"{page.address}/api/status?look={first['look'] + 1}")
        assert json.loads(other[0])["workers"] == first["workers"]
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        page.close()

    asyncio.run(work())


def test_what_was_seen_long_ago_is_not_shown() -> None:
    shown = ["Training"]

    async def work() -> None:
        listening = bound(settings(status_port="0"))
        assert listening is not None
        page = StatusPage(listening, lambda: content(state=shown[0]))
        assert (await page._encoded()).content.status.state == "Training"
        shown[0] = "Succeeded"
        assert (await page._encoded()).content.status.state == "Training", "it was seen just now"
        page._due_s = page._stale_s = 0.0  # some seconds pass
        assert (await page._encoded()).content.status.state == "Succeeded"
        page.close()

    asyncio.run(work())
