"""The systems page: capabilities, metrics and contents of each system."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import Query, Request, Response

from app.admin.api.responses import NAME, Control, Name
from app.admin.api.systems import NewSystem
from app.admin.pages.forms import not_expected, read_form, read_model
from app.admin.pages.page import Page, colours_of, page_router, redirect, render
from app.http.problems import problem_of
from mediator.base.errors import MediatorError, NotFound
from mediator.control.port import SeenStatements, SystemUse
from mediator.schema.annotations import Capability, Metric
from mediator.stores.kinds import store_kinds

__all__ = ["PAGE"]

router = page_router()
_NEW: Final = frozenset({"name", "kind", "url"})
_METRIC: Final = frozenset({"metric", "value"})

SystemName = Annotated[str | None, Query(pattern=NAME)]


@router.get("/systems")
async def show(request: Request, control: Control, system: SystemName = None) -> Response:
    return await _page(request, control, system)


@router.post("/systems")
async def register(request: Request, control: Control) -> Response:
    """Register a system; its URL is not shown again, as it may hold a password."""
    form = await read_form(request, _NEW)
    system = read_model(NewSystem, form)
    registration = system.registration()
    await control.register(registration)
    return _back(registration.config.name)


@router.post("/systems/{name}/calibrate")
async def calibrate(control: Control, name: Name) -> Response:
    await control.calibrate(name)
    return _back(name)


@router.post("/systems/{name}/metrics")
async def state_metric(request: Request, control: Control, name: Name) -> Response:
    """State a metric of a system; without a value, return to the measured one."""
    form = await read_form(request, _METRIC)
    value = _figure(form.get("value", ""))
    await control.amend(name, metrics={form.get("metric", ""): value})
    return _back(name)


@router.post("/systems/{name}/declared")
async def declare(request: Request, control: Control, name: Name) -> Response:
    """Declare capabilities, unless they have changed since they were shown."""
    form = await read_form(request, frozenset({"declared", "seen"}))
    try:
        seen = SeenStatements(declared=frozenset(_capabilities(form, "seen")))
        await control.amend(name, declared=_capabilities(form, "declared"), seen=seen)
    except MediatorError as error:
        return await _page(request, control, name, form=form, refusal=error)
    return _back(name)


@router.post("/systems/{name}/use")
async def use(request: Request, control: Control, name: Name) -> Response:
    """Drain, suspend or resume a system, unless its use has changed since it was shown."""
    form = await read_form(request, frozenset({"use", "seen"}))
    try:
        seen = SeenStatements(use=_use(form, "seen"))
        await control.amend(name, use=_use(form, "use"), seen=seen)
    except MediatorError as error:
        return await _page(request, control, name, refusal=error)
    return _back(name)


@router.post("/systems/{name}/remove")
async def remove(control: Control, name: Name) -> Response:
    await control.unregister(name)
    return redirect("/systems")


async def _page(
    request: Request,
    control: Control,
    name: str | None,
    *,
    form: Mapping[str, str] | None = None,
    refusal: MediatorError | None = None,
) -> Response:
    """Show a system; after a refusal, with the capabilities of the form."""
    systems = await control.systems()
    serves = (await control.readiness())["systems"]
    system = _select(systems, name)
    classes = serves[system["name"]]["serves"] if system else []
    leaves = system is not None and system["use"] != SystemUse.FULL
    moves = await control.moves_off(system["name"]) if system and leaves else []
    problem = None if refusal is None else problem_of(refusal).document()
    declared = ", ".join(system["declared"]) if system else ""
    return render(
        request,
        "systems.html",
        200 if problem is None else problem["status"],
        problem=problem,
        form=form or {"declared": declared, "seen": declared},
        systems=systems,
        serves=serves,
        chosen=system,
        classes=classes,
        moves=moves,
        sizes=await request.app.state.sizes.of(request, classes),
        colours=colours_of(systems),
        kinds=store_kinds(),
        metrics=list(Metric),
        capabilities=list(Capability),
    )


def _select(systems: list[dict[str, Any]], name: str | None) -> dict[str, Any] | None:
    if name is None:
        return systems[0] if systems else None
    for system in systems:
        if system["name"] == name:
            return system
    raise NotFound("There is no such system.")


def _capabilities(form: Mapping[str, str], name: str) -> list[str]:
    if name not in form:
        raise not_expected(name, "capabilities, or nothing")
    return list(filter(None, re.split(r"[\s,]+", form[name])))


def _use(form: Mapping[str, str], name: str) -> SystemUse:
    try:
        return SystemUse(form.get(name, ""))
    except ValueError:
        raise not_expected(name, f"one of {', '.join(SystemUse)}") from None


def _figure(text: str) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise not_expected("value", "a number from 0 on, or nothing")
    return value


def _back(name: str) -> Response:
    return redirect(f"/systems?system={name}")


PAGE = Page("Systems", "/systems", "What each system can do, and what is placed on it.", router)
