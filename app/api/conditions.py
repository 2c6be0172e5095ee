"""Translation of HTTP preconditions to the condition of a write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from app.api.resources import FieldSelection
from app.api.routed_request import RoutedRequest
from app.http.preconditions import Preconditions, Tags, binding_versions, format_tag
from mediator.base.errors import NotFound, PreconditionFailed
from mediator.data_plane.port import DataPlane
from mediator.model.operations import ANYTHING, Condition, Get
from mediator.routing.freshness import STRONG

__all__ = ["condition_of", "if_match_condition"]

_Versions: TypeAlias = Mapping[str, int | None]


async def condition_of(
    plane: DataPlane, routed: RoutedRequest, selection: FieldSelection, preconditions: Preconditions
) -> Condition:
    """Translate If-Match and If-None-Match in the order of RFC 9110, section 13.2.2.

    If-None-Match with tags excludes versions, but a store can only require versions. So the current
    versions are read and compared, and the write requires exactly these. They are read from the
    systems, because a view that lags behind could exclude what is allowed.

    Raises:
        NotFound: If-None-Match on a method that does not create, and no object.
        PreconditionFailed: The preconditions cannot hold for any state of the object.
    """
    match, none = preconditions.if_match, preconditions.if_none_match
    if none is None:
        return ANYTHING if match is None else if_match_condition(match, selection)
    creates = routed.request.method == "PUT" and selection.fields is None
    if none.any and match is None and creates:
        return Condition(present=False)
    operation = Get(routed.database, routed.class_name, routed.id, selection.fields)
    try:
        outcome = await plane.read(operation, STRONG)
    except NotFound:
        if match is None and creates:
            return Condition(present=False)
        raise
    versions = {group: outcome.versions.get(group) for group in selection.groups}
    return _condition_on(versions, match, none, selection)


def if_match_condition(match: Tags, selection: FieldSelection) -> Condition:
    """Return the condition of If-Match; raise `PreconditionFailed` if no tag fits the resource."""
    if match.any:
        return Condition(present=True)
    versions = binding_versions(match, selection.groups, selection.schema_version, selection.pinned)
    if not versions:
        raise PreconditionFailed("If-Match names no version of this resource.")
    return Condition(versions=versions)


def _condition_on(
    versions: _Versions, match: Tags | None, none: Tags, selection: FieldSelection
) -> Condition:
    tag = format_tag(selection.schema_version, selection.groups, versions, selection.pinned)
    if none.match_weakly(tag) or not (match is None or match.match_strongly(tag)):
        raise PreconditionFailed("The object has a version that the request excludes.")
    return Condition(versions=(versions,))
