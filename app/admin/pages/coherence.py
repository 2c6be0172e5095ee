"""The coherence page: filters, granted TTLs, purges, and staleness as measured."""

from __future__ import annotations

import re
from typing import Any, Final

from fastapi import Request, Response

from app.admin.api.probes import Probes
from app.admin.pages.forms import read_form
from app.admin.pages.page import Page, page_router, redirect, render
from app.admin.pages.series import purges, ttls
from mediator.staleness_probes.model import read_request

__all__ = ["PAGE"]

router = page_router()
_INTEGER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_FIELDS: Final = frozenset({"class", "path", "count", "rate"})


@router.get("/coherence")
async def show(request: Request) -> Response:
    state = request.app.state
    databases = await state.control.databases()
    return render(
        request,
        "coherence.html",
        sketch=None if state.caches is None else await state.caches.overview(None),
        ttls=ttls(state.metrics),
        purges=purges(state.metrics),
        classes=[f"{d['name']}/{c}" for d in databases for c in d["classes"]],
        probe=None if state.probes is None else state.probes.describe(),
    )


@router.post("/coherence/probe")
async def start(request: Request, probes: Probes) -> Response:
    form = await read_form(request, _FIELDS)
    database, _, class_name = form.get("class", "").partition("/")
    probe: dict[str, Any] = {
        "database": database,
        "class": class_name,
        "path": form.get("path") or "fresh",
        "count": _number(form.get("count")),
        "rate": _number(form.get("rate")),
    }
    await probes.start(read_request(probe))
    return redirect("/coherence#probe")


@router.post("/coherence/probe/stop")
async def stop(probes: Probes) -> Response:
    await probes.stop()
    return redirect("/coherence#probe")


def _number(text: str | None) -> Any:
    """Parse a whole number; leave anything else for the probe to refuse."""
    return int(text) if text and _INTEGER.fullmatch(text) else text


PAGE = Page(
    "Coherence", "/coherence", "How fresh cached copies are, and what keeps them so.", router
)
