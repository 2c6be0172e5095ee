"""The sketch: the parameter of a request, and the client's filter as JSON."""

from __future__ import annotations

from pydantic import Field

from app.api.models.common import Count
from app.http.validation import Answer, Parameters

__all__ = ["ClientFilter", "SketchParameters"]


class SketchParameters(Parameters):
    """The classes whose filters are united."""

    class_names: str | None = Field(
        None,
        alias="class",
        description="Classes whose filters are united; all of them unless named.",
        json_schema_extra={"pattern": "^[a-z][a-z0-9_]{0,62}(,[a-z][a-z0-9_]{0,62})*$"},
    )


class ClientFilter(Answer):
    """The filter by which a client knows which of its copies to revalidate."""

    version: Count
    hash: Count = 0
    k: Count
    seed: Count = 0
    m: Count
    time_us: Count
    valid_for_ms: Count
    revision: str = Field("", pattern="^[0-9]{1,20}$")
    revalidate_all: bool = False
    generation: str = Field(pattern="^[0-9a-f]{32}$")
    map: dict[str, dict[str, list[str]]]
    bits: str = Field(json_schema_extra={"contentEncoding": "base64"})
