"""One service and one browser for all pages; the complaints of a page fail its test."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Browser, Page, ViewportSize, async_playwright, expect

from mediator.catalogue.connection import Catalogue
from mediator.stores.port import SystemConfig
from tests.faults.service import Service
from tests.pages.stage import Stage
from tests.process.service import scratch_catalogue, scratch_systems, unique

CHROMIUM = shutil.which("chromium")
VIEWPORT: ViewportSize = {"width": 1200, "height": 900}
WITHIN_MS = 120_000
"""For expectations and clicks: a busy machine stands still for longer than 5 s."""

_REPORT_VIOLATIONS = """
document.addEventListener("securitypolicyviolation",
  (event) => console.error("CSP", event.violatedDirective, event.blockedURI));
"""


@pytest.fixture(scope="module")
async def stage(
    redis_config: SystemConfig,
    postgresql_config: SystemConfig,
    mongodb_config: SystemConfig,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Stage]:
    """The newspaper in a running service.

    It ends with the module: its relays hold the leases of the Redis that all tests share.
    """
    jobs = tmp_path_factory.mktemp("jobs")
    async with (
        scratch_catalogue(postgresql_config) as catalogue_url,
        scratch_systems(redis_config, postgresql_config, mongodb_config) as configs,
        Service.on(
            configs,
            catalogue_url,
            redis_config.url,
            jobs_dir=str(jobs),
            relays="here",
        ).running() as service,
        httpx.AsyncClient(base_url=f"{service.data}/v1/", timeout=60) as data,
        httpx.AsyncClient(base_url=f"{service.admin}/admin/v1/", timeout=60) as admin,
    ):
        catalogue = Catalogue(catalogue_url)
        stage = Stage(data, admin, catalogue, Path(jobs), unique("news"))
        await stage.fill()
        yield stage
        await catalogue.close()


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    expect.set_options(timeout=WITHIN_MS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        await browser.close()


@pytest.fixture(scope="module")
async def tab(browser: Browser, stage: Stage) -> AsyncIterator[tuple[Page, list[str]]]:
    """A tab at the address of the pages, and its complaints.

    Opening one takes as long as a test, so the tests of a module share it.
    """
    base = str(stage.admin.base_url.join("/"))
    context = await browser.new_context(base_url=base)
    context.set_default_timeout(WITHIN_MS)
    page = await context.new_page()
    await page.add_init_script(_REPORT_VIOLATIONS)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.append(f"{request.failure}: {request.url}"))
    page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    yield page, complaints
    await context.close()


@pytest.fixture
async def page(tab: tuple[Page, list[str]]) -> AsyncIterator[Page]:
    """The tab, reset after each test; its complaints fail the test."""
    page, complaints = tab
    complaints.clear()
    await page.set_viewport_size(VIEWPORT)
    await page.emulate_media(color_scheme="light")
    yield page
    if page.url != "about:blank":
        await page.evaluate("localStorage.clear()")
        await page.goto("about:blank")
    assert [message for message in complaints if "ERR_ABORTED" not in message] == []


@pytest.fixture
async def failures(page: Page, tab: tuple[Page, list[str]]) -> AsyncIterator[None]:
    """Let answers fail: the browser's messages about it are no complaints."""
    yield
    expected = ("Failed to load resource", "ERR_CONNECTION_REFUSED")
    _, complaints = tab
    complaints[:] = [
        message for message in complaints if not any(text in message for text in expected)
    ]
