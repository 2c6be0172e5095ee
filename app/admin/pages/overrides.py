"""Overrides on the map: a dry run, and then the change itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from fastapi import Request, Response

from app.admin.api.overrides import OverrideDocument, change_override
from app.admin.api.responses import Control
from app.admin.api.schemas import By
from app.admin.pages.forms import not_expected, read_form, read_model, read_name
from app.admin.pages.page import colours_of, page_router, redirect, render
from app.admin.pages.schema_editor import placement_changes

__all__ = ["router"]

router = page_router()

_OVERRIDE: Final = ("system", "reason", "until")
_FIELDS: Final = frozenset({"database", "node", "apply", *_OVERRIDE})
_NODE: Final = re.compile(r"[a-z][a-z0-9_]{0,62}(\.[A-Za-z][A-Za-z0-9_]{0,62})?")


@router.post("/map/override")
async def override(request: Request, control: Control, author: By) -> Response:
    """Try an override, or the end of one, and put it in force if the form says so."""
    form = await read_form(request, _FIELDS)
    database, node = read_name(form, "database"), form.get("node", "")
    if not _NODE.fullmatch(node):
        raise not_expected("node", "a class, or a field of one")
    document, dry_run = _document(form), "apply" not in form
    before = await control.schema(database)
    after = await change_override(control, database, node, document, author, dry_run=dry_run)
    if not dry_run:
        return redirect(f"/map?{urlencode({'database': database, 'node': node})}#why")
    return render(
        request,
        "override.html",
        database=database,
        node=node,
        document=document,
        form={name: form[name] for name in _OVERRIDE if name in form},
        placed=placement_changes(before, after),
        change=after,
        colours=colours_of(await control.systems()),
    )


def _document(form: Mapping[str, str]) -> OverrideDocument | None:
    """Read an override; a form without any of its fields ends the existing override."""
    fields = {name: form[name] for name in _OVERRIDE if name in form}
    if not fields:
        return None
    fields["until"] = f"{fields.get('until', '')}Z"
    return read_model(OverrideDocument, fields)
