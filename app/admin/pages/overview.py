"""The overview page: systems, databases, load, violations and the latest events."""

from __future__ import annotations

from typing import Any, Final

from fastapi import Request, Response

from app.admin.pages.page import Page, colours_of, page_router, render
from app.admin.pages.series import requests, runs
from app.telemetry.recent_events import RecordedEvent
from mediator.base.observation import (
    CircuitChanged,
    PlacementDecided,
    ProposalRecorded,
    RedoRecovered,
    SystemRegistered,
    ViolationDetected,
)
from mediator.placement.figures import metric, name_of, seconds, share

__all__ = ["PAGE"]

router = page_router()
_MAX_ROWS: Final = 12


@router.get("/")
async def show(request: Request) -> Response:
    state = request.app.state
    recent = [] if state.recent_events is None else state.recent_events.events
    systems, databases = await state.control.systems(), await state.control.databases()
    classes = [f"{d['name']}.{c}" for d in databases for c in d["classes"]]
    if state.refresh is not None:
        await state.refresh()
    return render(
        request,
        "overview.html",
        readiness=await state.control.readiness(),
        systems=systems,
        loads={system["name"]: _load(system["traffic"]) for system in systems},
        colours=colours_of(systems),
        scaling=await state.control.scaling(),
        databases=databases,
        sizes=await state.sizes.of(request, classes),
        runs=runs(state.metrics),
        history=[] if state.request_history is None else state.request_history.intervals,
        requests=requests(state.metrics),
        violations=await state.control.violations(),
        proposals=await state.control.proposals(),
        limit=_MAX_ROWS,
        events=[(event.at_s, *_sentence(event)) for event in recent[:_MAX_ROWS]],
    )


def _load(traffic: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Sum up the calls of a system by operation: their number, and their mean time in seconds."""
    loads: dict[str, dict[str, float]] = {}
    for row in traffic:
        load = loads.setdefault(row["operation"], {"calls": 0.0, "seconds": 0.0})
        load["calls"] += row["calls"]
        load["seconds"] += row["calls"] * row["mean_s"]
    return {
        name: {"calls": load["calls"], "mean": load["seconds"] / load["calls"]}
        for name, load in loads.items()
        if load["calls"]
    }


def _sentence(event: RecordedEvent) -> tuple[str, str]:
    match event.observation:
        case PlacementDecided(database, epoch, placements):
            systems = ", ".join(sorted(set(placements.values())))
            return "placement", f"{database} was placed on {systems} (epoch {epoch})."
        case ProposalRecorded(database, node, current, proposed, margin):
            lead = f"leads by {share(margin)}"
            return "proposal", f"{proposed} {lead} over {current} for {database}, {node}."
        case ViolationDetected(database, node, name, system, measured, _, _, duration_s):
            value = f"{metric(measured, name)} on {system} for {seconds(duration_s)}"
            return "violation", f"{database}, {node}: {name_of(name)} {value}."
        case CircuitChanged(system, opened, reason):
            change = f"is left alone: {reason}" if opened else "answers again"
            return "health", f"{system} {change}."
        case RedoRecovered(database, _, _, reason):
            return "refusal", f"{database}: {reason}"
        case SystemRegistered(system, _, server):
            return "system", f"{system} was connected: {server}."
    raise AssertionError("no other kind is kept")


PAGE = Page("Overview", "/", "Systems, databases, load, and the latest events.", router)
