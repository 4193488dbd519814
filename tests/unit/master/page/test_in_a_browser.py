"""The page as a browser shows it: nothing in its console, nothing asked of others, nothing that keeps somebody out."""

import asyncio
import dataclasses
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edlz.services.master.page.content import Content
from edlz.services.master.page.rendering import render
from edlz.services.master.page.status_page import StatusPage, bound
from edlz.services.protocol.job_status import EventView
from tests import builders
from tests.shown_pages import BEGAN, content

playwright = pytest.importorskip("playwright.async_api", reason="no playwright")
axe = pytest.importorskip("axe_playwright_python.async_playwright", reason="no axe-core")

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((path for path in map(shutil.which, BROWSERS) if path), None)
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine"),
    # A browser's driver leaves its pipes to the end of the interpreter.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def browsed(scheme: str, work: Callable[[Any, list[str]], Awaitable[None]]) -> None:
    """Run some work in a page of a browser that reaches nothing but this machine, with what its console says."""

    async def run() -> None:
        async with playwright.async_playwright() as driver, asyncio.timeout(120):
            rules = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1"
            browser = await driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", rules])
            page = await browser.new_page(color_scheme=scheme)
            said: list[str] = []
            page.on("console", lambda message: said.append(message.text))
            page.on("pageerror", lambda error: said.append(str(error)))
            page.on("requestfailed", lambda request: said.append(f"failed: {request.url}"))
            await work(page, said)
            await browser.close()

    asyncio.run(run())


async def violations(page: Any) -> list[str]:
    found = await axe.Axe().run(page, options={"runOnly": LEVELS})
    return [f"{each['id']}: {each['nodes'][0]['html']}" for each in found.response["violations"]]


def served(
    scheme: str, work: Callable[[Any, list[str], dict[str, Any]], Awaitable[None]], **about: Any
) -> None:
    """Run some work in a browser that looks at a page; what the page shows can be changed meanwhile."""
    shown: dict[str, Any] = {"content": content(**about)}

    async def both(page: Any, said: list[str]) -> None:
        listening = bound(builders.settings(status_port="0"))
        assert listening is not None
        server = StatusPage(listening, lambda: shown.get("look", lambda: shown["content"])())
        serving = asyncio.create_task(server.run(), name="page")
        try:
            await page.goto(server.address)
            await page.wait_for_selector("#charts svg path")
            await work(page, said, shown)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            await asyncio.sleep(0)  # connections that were cut off are closed by the loop
            server.close()

    browsed(scheme, both)


def test_at_three_widths_nothing_is_cut_off_and_axe_finds_nothing(scheme: str) -> None:
    async def work(page: Any, said: list[str], shown: dict[str, Any]) -> None:
        for width in (400, 1000, 1600):
            await page.set_viewport_size({"width": width, "height": 900})
            assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
            assert await violations(page) == []
        assert said == []

    served(scheme, work, mode="async")


def test_it_goes_on_by_itself_and_says_another_state() -> None:
    async def work(page: Any, said: list[str], shown: dict[str, Any]) -> None:
        shown["content"] = content(state="Succeeded")
        await page.wait_for_selector("#state:text-is('Succeeded')")
        assert await page.text_content("#said") == "mnist is Succeeded"
        assert await page.title() == "mnist Succeeded 100 %"
        assert said == []

    served("light", work)


def test_a_master_that_is_gone_is_said_and_what_was_seen_stays() -> None:
    async def work(page: Any, said: list[str], shown: dict[str, Any]) -> None:
        def gone() -> Content:
            raise RuntimeError("the master has ended")

        shown["look"] = gone
        await page.wait_for_selector("#fresh:has-text('no answer for')", timeout=60_000)
        assert await page.text_content("#state") == "Training"
        shown["look"] = lambda: content(state="Succeeded")
        await page.wait_for_selector("#state:text-is('Succeeded')", timeout=60_000)
        said.clear()  # a browser notes each answer that is an error

    served("light", work)


def test_a_page_that_is_open_for_long_keeps_the_newest_events_only() -> None:
    async def work(page: Any, said: list[str], shown: dict[str, Any]) -> None:
        for first in (7, 127, 247):
            new = tuple(
                EventView(seq=n, at=BEGAN + 90, kind="worker", text=f"worker-{n} lost: killed.")
                for n in range(first, first + 120)
            )
            before = shown["content"]
            status = msgspec.structs.replace(before.status, events=new)
            shown["content"] = dataclasses.replace(before, status=status)
            await page.wait_for_selector(f"#events td:text-is('worker-{first + 119} lost: killed.')")
        assert await page.text_content("section:has(#events) > button.more") == "Show all 200"
        assert await page.locator("#charts svg").first.locator("line.mark").count() <= 200
        assert said == []

    served("light", work)


def test_a_group_has_a_table_in_place_of_its_servers(scheme: str) -> None:
    async def work(page: Any, said: list[str], shown: dict[str, Any]) -> None:
        before = shown["content"]
        workers = tuple(
            msgspec.structs.replace(worker, rank=rank) for rank, worker in enumerate(before.status.workers)
        )
        about = {"workers": workers, "is_allreduce": True, "generation": (2, 3)}
        status = msgspec.structs.replace(before.status, **about)
        shown["content"] = dataclasses.replace(before, status=status)
        await page.wait_for_selector("#group td:text-is('2.3')")
        cells = await page.locator("#group tbody td").all_text_contents()
        assert cells == ["2.3", "worker-0, worker-1, worker-2, worker-3", "v354", "v300"]
        assert await page.locator("section:has(#ps)").is_hidden()
        assert await violations(page) == []
        assert said == []

    served(scheme, work)


def test_tables_are_sorted_and_read_by_keyboard() -> None:
    async def work(page: Any, said: list[str], shown: dict[str, Any]) -> None:
        assert await page.locator("#workers tbody tr").count() == 100, "the others are a button away"
        await page.focus("#workers th:nth-child(7) button")
        await page.keyboard.press("Enter")
        assert await page.get_attribute("#workers th:nth-child(7)", "aria-sort") == "descending"
        assert await page.text_content("#workers tbody td") == "149"
        assert await page.evaluate("document.activeElement.textContent") == "compute"
        await page.click("button.more")
        assert await page.locator("#workers tbody tr").count() == 150
        await page.click("[aria-label='Throughput, records/s as table']")
        assert await page.locator("#c0 tbody tr").count() > 50
        await page.click("#theme")
        assert await page.get_attribute("html", "data-theme") == "light"
        assert await violations(page) == []
        assert said == []

    served("dark", work, workers=150)


def test_the_report_works_from_a_file_and_without_scripts_has_its_tables(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    report.write_bytes(render(content(state="Failed").tree(), is_report=True))

    async def work(page: Any, said: list[str]) -> None:
        await page.goto(report.as_uri())
        await page.wait_for_selector("#charts svg path")
        assert await page.text_content("#state") == "Failed"
        assert await violations(page) == []
        bare = await page.context.browser.new_page(java_script_enabled=False)
        await bare.goto(report.as_uri())
        assert await bare.locator("#workers tbody tr").count() == 4
        assert await bare.locator("#events tbody tr").count() == 6
        assert await bare.locator("#charts").is_hidden()
        assert said == []

    browsed("light", work)


def test_a_job_that_has_just_begun_has_a_page_too() -> None:
    async def work(page: Any, said: list[str]) -> None:
        await page.set_content(render(content(rows=0, workers=0, tasks=0).tree(), is_report=True).decode())
        await page.wait_for_selector("#charts svg text")
        assert await page.locator("#charts svg").count() >= 6
        assert said == []

    browsed("dark", work)
