"""The pictures of the admin pages in the documentation: ``make screenshots``.

They show a newspaper on embedded stores of its own, with a job that a worker carries out (which
needs Spark), a probe, and a slider that was moved. They are taken with the `chromium` on PATH.
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
PATIENCE_MS: Final = 400_000
REDRAWN_MS: Final = 500
WATCHED_S: Final = 25
JOB: Final = {"kind": "example.count", "spec": {"records": {"class": "articles"}, "field": "title"}}
PUBLIC: Final = {"classes": {"articles": {"cache": {"visibility": "public"}}}}


async def main() -> None:
    """Set the stage, and take the pictures."""
    directory = Path(tempfile.mkdtemp(prefix="portolan-pages-"))
    try:
        with EmbeddedFleet(directory) as fleet:
            settings = _patient(on_embedded(MediatorSettings(data_dir=directory), fleet.endpoints))
            ports = HttpSettings(port=0, admin_port=0, log_level="warning")
            async with (
                serving(ports, settings, CacheSettings()) as running,
                _worker(settings),
                Service.at(running.addresses.data, running.addresses.admin) as service,
                _browser() as browser,
            ):
                run = await _furnish(service)
                await _take_all(browser, running.addresses.admin, service, run)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _patient(settings: MediatorSettings) -> MediatorSettings:
    """Let systems answer late: Spark, a browser and three servers share this machine."""
    systems = [system.model_copy(update={"deadline_s": 30.0}) for system in settings.systems]
    return settings.model_copy(update={"systems": systems})


async def _furnish(service: Service) -> str:
    """Location and load the newspaper, and have readers read it; return the id of a run."""
    await service.declare(DECLARED)
    await service.set_schema("news", SCHEMA)
    await succeed(service.admin.patch("schemas/news", json=PUBLIC))
    await service.create("news", objects())
    run: str = (await succeed(service.data.post("news/jobs", json=JOB)))["id"]
    return run


async def _read(service: Service, seconds: float) -> None:
    """Count hits and read articles for a while, some of them far more often than others."""
    chance, loop = Random(1), asyncio.get_running_loop()  # noqa: S311 - made-up readers
    end = loop.time() + seconds
    hit = b'{"hits": {"inc": 1}}'
    as_update = {"content-type": "application/vnd.portolan.update+json"}
    while loop.time() < end:
        article = f"news/articles/a{min(99, int(chance.paretovariate(0.8)) - 1)}"
        await succeed(service.data.patch(article, headers=as_update, content=hit))
        await succeed(service.data.get(article))


async def _take_all(browser: Browser, admin: str, service: Service, run: str) -> None:
    async def wide(name: str, path: str, prepare: Callable[[Page], Awaitable[None]]) -> None:
        await _take(browser, name, admin + path, prepare, WIDE, dark=name == "jobs")

    async def watched(_: Page) -> None:
        await _read(service, WATCHED_S)

    async def ended(page: Page) -> None:
        await expect(page.locator("#state-heading")).to_contain_text("done", timeout=PATIENCE_MS)

    await wide("overview", "/", watched)
    await wide("map", "/map", _nothing)
    await wide("what-if", "/what-if?database=news&metrics redis write_throughput=-5", _nothing)
    await wide("coherence", "/coherence", _probe)
    await wide("jobs", f"/jobs/news/{run}", ended)
    await wide("submit", "/jobs", _nothing)
    await wide("schema", "/schema?database=news", _try_schema)
    query = "hits.ge=1&order=-hits&limit=5"
    await wide("data", f"/data?database=news&class=articles&{query}", _nothing)
    await _take(browser, "phone", f"{admin}/map", _nothing, PHONE, dark=True)


async def _nothing(_: Page) -> None:
    """Leave the page as it is."""


async def _try_schema(page: Page) -> None:
    """Give articles a rank with an index, and titles a shorter length than some have."""
    changed = deepcopy(SCHEMA)
    fields = changed["classes"]["articles"]["fields"]
    fields["rank"] = {"type": "integer", "index": True}
    fields["title"]["max_length"] = 15
    text = orjson.dumps(changed, option=orjson.OPT_INDENT_2).decode()
    await page.get_by_label("Schema (JSON").fill(text)
    await page.get_by_role("button", name="Dry run").click()
    await expect(page.locator("#tried")).to_be_visible(timeout=PATIENCE_MS)


async def _probe(page: Page) -> None:
    await page.get_by_label("Class").select_option("news/people")
    await page.get_by_role("button", name="Measure").click()
    await expect(page.locator("#probe-state")).to_contain_text(": done", timeout=PATIENCE_MS)


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
    await page.wait_for_timeout(REDRAWN_MS)
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
