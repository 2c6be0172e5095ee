"""The pictures of the admin pages in the documentation: ``make screenshots``.

They show a newspaper on its own embedded stores, with a job that a worker executes (which needs
Spark), a probe, and a slider that was moved. They are taken with the `chromium` on PATH.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Final

import orjson
from playwright.async_api import Browser, Page, ViewportSize, async_playwright, expect

from app.commands.demo.newspaper import DECLARED, SCHEMA, objects
from app.commands.demo.service import Service, succeed
from app.service.container import on_embedded
from app.service.serving import serving
from app.settings.main import CacheSettings, HttpSettings, MediatorSettings
from mediator.embedded.fleet import EmbeddedFleet

FOLDER: Final = Path(__file__).parent / "pages"
WIDE: Final[ViewportSize] = {"width": 1200, "height": 800}
PHONE: Final[ViewportSize] = {"width": 360, "height": 740}
TIMEOUT_MS: Final = 400_000
REDRAW_MS: Final = 500
LOAD_S: Final = 25
JOB: Final = {"kind": "example.count", "spec": {"records": {"class": "articles"}, "field": "title"}}
PUBLIC: Final = {"classes": {"articles": {"cache": {"visibility": "public"}}}}


async def main() -> None:
    """Set up the service, and take the pictures."""
    directory = Path(tempfile.mkdtemp(prefix="portolan-pages-"))
    try:
        with EmbeddedFleet(directory) as fleet:
            settings = _with_long_deadlines(
                on_embedded(MediatorSettings(data_dir=directory), fleet.endpoints)
            )
            ports = HttpSettings(port=0, admin_port=0, log_level="warning")
            async with (
                serving(ports, settings, CacheSettings()) as running,
                _worker(settings),
                Service.at(running.addresses.data, running.addresses.admin) as service,
                _browser() as browser,
            ):
                run = await _set_up(service)
                await _take_all(browser, running.addresses.admin, service, run)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _with_long_deadlines(settings: MediatorSettings) -> MediatorSettings:
    """Allow slow systems: Spark, a browser and three servers share this machine."""
    systems = [system.model_copy(update={"deadline_s": 30.0}) for system in settings.systems]
    return settings.model_copy(update={"systems": systems})


async def _set_up(service: Service) -> str:
    """Set up and load the newspaper, and submit a job; return the id of its run."""
    await service.declare(DECLARED)
    await service.set_schema("news", SCHEMA)
    await succeed(service.admin.patch("schemas/news", json=PUBLIC))
    await service.create("news", objects())
    run: str = (await succeed(service.data.post("news/jobs", json=JOB)))["id"]
    return run


async def _read(service: Service, seconds: float) -> None:
    """Count hits and read articles for a while, some of them far more often than others."""
    chance, loop = Random(1), asyncio.get_running_loop()  # noqa: S311 - synthetic readers
    end = loop.time() + seconds
    hit = b'{"hits": {"inc": 1}}'
    update_headers = {"content-type": "application/vnd.portolan.update+json"}
    while loop.time() < end:
        article = f"news/articles/a{min(99, int(chance.paretovariate(0.8)) - 1)}"
        await succeed(service.data.patch(article, headers=update_headers, content=hit))
        await succeed(service.data.get(article))


async def _take_all(browser: Browser, admin: str, service: Service, run: str) -> None:
    async def wide(name: str, path: str, prepare: Callable[[Page], Awaitable[None]]) -> None:
        await _take(browser, name, admin + path, prepare, WIDE, dark=name == "jobs")

    async def under_load(_: Page) -> None:
        await _read(service, LOAD_S)

    async def until_done(page: Page) -> None:
        await expect(page.locator("#state-heading")).to_contain_text("done", timeout=TIMEOUT_MS)

    await wide("overview", "/", under_load)
    await wide("map", "/map", _leave_unchanged)
    await wide(
        "what-if", "/what-if?database=news&metrics redis write_throughput=-5", _leave_unchanged
    )
    await wide("coherence", "/coherence", _probe)
    await wide("jobs", f"/jobs/news/{run}", until_done)
    await wide("submit", "/jobs", _leave_unchanged)
    await wide("schema", "/schema?database=news", _try_schema)
    query = "hits.ge=1&order=-hits&limit=5"
    await wide("data", f"/data?database=news&class=articles&{query}", _leave_unchanged)
    await _take(browser, "phone", f"{admin}/map", _leave_unchanged, PHONE, dark=True)


async def _leave_unchanged(_: Page) -> None:
    """Leave the page as it is."""


async def _try_schema(page: Page) -> None:
    """Give articles a rank with an index, and titles a shorter length than some have."""
    schema = deepcopy(SCHEMA)
    fields = schema["classes"]["articles"]["fields"]
    fields["rank"] = {"type": "integer", "index": True}
    fields["title"]["max_length"] = 15
    text = orjson.dumps(schema, option=orjson.OPT_INDENT_2).decode()
    await page.get_by_label("Schema (JSON").fill(text)
    await page.get_by_role("button", name="Dry run").click()
    await expect(page.locator("#tried")).to_be_visible(timeout=TIMEOUT_MS)


async def _probe(page: Page) -> None:
    await page.get_by_label("Class").select_option("news/people")
    await page.get_by_role("button", name="Measure").click()
    await expect(page.locator("#probe-state")).to_contain_text(": done", timeout=TIMEOUT_MS)


async def _take(
    browser: Browser,
    name: str,
    address: str,
    prepare: Callable[[Page], Awaitable[None]],
    size: ViewportSize,
    *,
    dark: bool,
) -> None:
    page = await browser.new_page(viewport=size, color_scheme="dark" if dark else "light")
    await page.goto(address)
    await prepare(page)
    await page.wait_for_timeout(REDRAW_MS)
    await page.screenshot(path=FOLDER / f"{name}.png", full_page=True)
    await page.close()


@asynccontextmanager
async def _worker(settings: MediatorSettings) -> AsyncIterator[None]:
    assert settings.catalogue_url is not None
    assert settings.coordination_url is not None
    environment = {
        "PORTOLAN_CATALOGUE_URL": settings.catalogue_url.get_secret_value(),
        "PORTOLAN_COORDINATION_URL": settings.coordination_url.get_secret_value(),
        "PORTOLAN_DATA_DIR": str(settings.data_dir),
    }
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from app.cli import main; main()", "worker"),
        stdout=PIPE,
        stderr=DEVNULL,
        env={**os.environ, **environment},
    )
    try:
        assert worker.stdout is not None
        await worker.stdout.readline()  # it waits for runs
        yield
    finally:
        worker.terminate()
        await worker.wait()


@asynccontextmanager
async def _browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
