"""Copies of values between fields of existing objects."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from app.admin.api.responses import DryRun, Name, component
from app.http.framework import SmallBodies
from mediator.control.copy_report import CopyRules, Fallback
from mediator.control.copying import Copying
from mediator.schema.copies import parse_copy
from mediator.schema.ids import check_id

__all__ = ["router"]

router = APIRouter(route_class=SmallBodies)

_MAX_CHARACTERS = 400
"""Longer than six names and their separators."""

CopyQuery = Annotated[
    str,
    Query(
        max_length=_MAX_CHARACTERS,
        description="`class.source:target`, `class.reference.source:target`, or"
        " `class.field=class.field.source:target`.",
    ),
]
After = Annotated[str | None, Query(description="Only objects with ids after this one.")]


def _rules(
    overwrite: Annotated[
        bool, Query(description="Also write objects that have another value.")
    ] = False,
    orphans: Annotated[
        Fallback | None, Query(description="For objects that lead to none; refused by default.")
    ] = None,
    duplicates: Annotated[
        Fallback | None, Query(description="For objects that lead to several; likewise.")
    ] = None,
    conflicts: Annotated[
        Fallback | None, Query(description="For values that do not fit; likewise.")
    ] = None,
) -> CopyRules:
    return CopyRules(overwrite, orphans, duplicates, conflicts)


@router.post("/copies/{database}")
async def copy_values(
    database: Name,
    copy: CopyQuery,
    rules: Annotated[CopyRules, Depends(_rules)],
    copying: Annotated[Copying, component("copying", "This process copies nothing.")],
    after: After = None,
    dry_run: DryRun = False,
) -> dict[str, Any]:
    """Copy values of a field to another one, where that has none.

    It works for some seconds and returns the last id that it reached as `next`: continue there. A
    dry run counts the objects that need a rule; without the rule they end the request (409), and
    nothing of their page is written.
    """
    after_id = None if after is None else check_id(after, "after")
    report = await copying.run(database, parse_copy(copy), rules, after=after_id, dry_run=dry_run)
    return report.to_json()
