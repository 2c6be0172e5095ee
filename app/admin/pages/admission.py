"""The page of admission control: edit, try out and set rules, and see fired ones."""

from __future__ import annotations

from typing import Any, Final

from fastapi import Request, Response

from app.admin.api.admission import Control, DryRunDocument, try_out
from app.admin.api.schemas import By
from app.admin.pages.forms import indented, read_form, read_model
from app.admin.pages.page import Page, page_router, redirect, render
from app.http.paths import parse_integer
from app.http.problems import problem_of
from mediator.admission.documents import rules_document
from mediator.admission.installation import INSTALLATION
from mediator.base.errors import MediatorError
from mediator.control.admission import AdmissionControl

__all__ = ["PAGE"]

router = page_router()

_FIELDS: Final = frozenset({"rules", "version", "events", "do"})
_MAX_FORM_BYTES: Final = 262_144
"""Bytes of a form: each character of its texts may be escaped."""

_LOG_ENTRIES: Final = 50
_EXAMPLE: Final = {
    "events": [
        {"event": "RunStarted", "run": {"id": "a", "prio": 1, "state": "ACTIVE"}},
        {"event": "Timer"},
    ],
    "snapshot": {
        "figures": {"workerCpuLoad": 80, "requestRate": 1000},
        "runs": [{"id": "a", "prio": 1, "state": "ACTIVE"}],
        "flows": [{"id": "f", "name": "reports", "queued": 500}],
        "queries": [{"id": "q", "name": "matches", "lag": 20000, "late": 10000}],
        "tenants": [{"name": "shop", "prio": 5, "rate": 1000}],
    },
}


@router.get("/admission")
async def show(request: Request, control: Control) -> Response:
    stored, _ = await control.rules()
    return await _page(request, control, {"text": stored.text, "version": stored.version})


@router.post("/admission")
async def change(request: Request, control: Control, author: By) -> Response:
    """Check the rules as they were typed, try them out, or put them in force."""
    form = await read_form(request, _FIELDS, _MAX_FORM_BYTES)
    # A browser sends CRLF; positions are those of its editor.
    text, action = form.get("rules", "").replace("\r\n", "\n"), form.get("do")
    version = parse_integer(form.get("version", "0"), "version", minimum=0)
    draft = {"text": text, "version": version, "events": form.get("events")}
    try:
        if action == "try":
            decisions = await try_out(control, _document(form.get("events", ""), text))
            return await _page(request, control, draft, tried=decisions)
        _, rules = await control.put(text, author, version, dry_run=action != "set")
    except MediatorError as error:
        return await _page(request, control, draft, error=error)
    if action == "set":
        return redirect("/admission")
    return await _page(request, control, draft, checked=rules_document(rules)["rules"])


def _document(events: str, rules: str) -> DryRunDocument:
    document = read_model(DryRunDocument, events, "The events cannot be read.")
    return document.model_copy(update={"rules": rules})


async def _page(
    request: Request,
    control: AdmissionControl,
    draft: dict[str, Any],
    *,
    error: MediatorError | None = None,
    checked: list[dict[str, Any]] | None = None,
    tried: list[dict[str, Any]] | None = None,
) -> Response:
    problem = None if error is None else problem_of(error).document()
    mistakes = [] if error is None else error.extra.get("problems", [])
    events = draft.get("events") or indented(_EXAMPLE)
    return render(
        request,
        "admission.html",
        draft={**draft, "events": events},
        problem=problem,
        lines={f"line {m['line']}, column {m['column']}": m["line"] for m in mistakes},
        checked=checked,
        tried=tried,
        log=await control.log(None, _LOG_ENTRIES),
        vocabulary=INSTALLATION,
    )


PAGE = Page("Admission", "/admission", "Rules that keep load off while there is too much.", router)
