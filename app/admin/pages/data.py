"""The data page: the objects of a class as a client reads them, and the plan of the query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import Query, Request, Response

from app.admin.api.responses import OfDatabase
from app.admin.pages.data_client import DataApiRefused, Pairs, select_database, send
from app.admin.pages.objects import ClassName, ClassView, class_view, router
from app.admin.pages.page import Page, redirect, render
from app.http.paths import parse_pairs
from mediator.base.errors import Invalid, Location

__all__ = ["OPERATORS", "PAGE", "Condition"]

OPERATORS: Final[Mapping[str, str]] = {
    "eq": "=",
    "ne": "≠",
    "lt": "<",
    "le": "≤",
    "gt": ">",
    "ge": "≥",
    "in": "is one of (a,b)",
    "between": "between (a,b)",
    "like": "matches (%, _)",
    "contains": "contains",
    "exists": "exists (true, false)",
}
"""Suffixes of conditions in the address of a query, and their signs for people."""

_PAGE_PARAMETERS: Final = frozenset({"database", "class", "filter", "order", "limit", "after"})
_NOT_CONDITIONS: Final = frozenset({"aggregate", "count", "explain", "fields", "ids", "join"})
"""Parameters of a query whose results the page cannot show."""

_BUILDER_PARAMETERS: Final = frozenset({"field", "operator", "value"})
_SCANS: Final = ("allow_scan", "true")
_EXPLAIN: Final = [("explain", "true")]
_FORBIDDEN: Final = 403

Text = Annotated[str, Query(max_length=4000)]
Limit = Annotated[int, Query(ge=1, le=100)]


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition as a parameter of an address: ``hits.ge=99``."""

    path: str
    operator: str
    value: str

    @classmethod
    def read(cls, name: str, value: str) -> Condition:
        path, _, operator = name.rpartition(".")
        return cls(path, operator, value) if operator in OPERATORS else cls(name, "eq", value)

    @property
    def parameter(self) -> tuple[str, str]:
        return f"{self.path}.{self.operator}", self.value


@router.get("/data")
async def show(
    request: Request,
    database: OfDatabase = None,
    class_name: ClassName = None,
    filter: Text = "",  # noqa: A002 - the name of the parameter
    order: Text = "",
    limit: Limit = 20,
    after: Text = "",
) -> Response:
    """Show objects; parameters that are not the page's own are conditions of the query."""
    pairs = parse_pairs(request.scope["query_string"])
    if any(name in _BUILDER_PARAMETERS for name, _ in pairs):
        return redirect(f"/data?{urlencode(_readable(pairs))}")
    databases, name = await select_database(request, database)
    classes: list[str] = next((d["classes"] for d in databases if d["name"] == name), [])
    selected = class_name or next(iter(classes), "")
    if not selected:
        return render(request, "data.html", databases=databases, database=name, classes=classes)
    query = _Query(_condition_pairs(pairs), filter, order, limit, after)
    answer, problem = await _answer(request, f"{name}/{selected}", query)
    view = await class_view(request, name, selected)
    return render(
        request,
        "data.html",
        databases=databases,
        database=name,
        classes=classes,
        chosen=selected,
        shown=view,
        query=query,
        operators=OPERATORS,
        sent=f"/v1/{name}/{selected}?{urlencode(query.parameters, safe=_READABLE)}",
        address=_Address([("database", name), ("class", selected), *query.parameters]),
        answer=answer,
        columns=_columns(view, answer["items"]) if answer else [],
        problem=problem,
        ascends=order if order in view.sortable else "",
    )


@dataclass(frozen=True, slots=True)
class _Query:
    """The query of the page on a class; `pairs` are the parameters that are conditions."""

    pairs: Pairs
    filter: str
    order: str
    limit: int
    after: str

    @property
    def parameters(self) -> Pairs:
        names = ("filter", "order", "limit", "after")
        page_parameters = [(name, str(getattr(self, name))) for name in names]
        return [*self.pairs, *(parameter for parameter in page_parameters if parameter[1])]

    @property
    def conditions(self) -> list[Condition]:
        return [Condition.read(*pair) for pair in self.pairs if pair[0] != _SCANS[0]]

    @property
    def scans(self) -> bool:
        """Whether it may read objects without an index."""
        return _SCANS in self.pairs


def _condition_pairs(pairs: Pairs) -> Pairs:
    """Return the parameters that are not the page's own; raises `Invalid` for a non-condition."""
    conditions = [pair for pair in pairs if pair[0] not in _PAGE_PARAMETERS]
    if refused := [
        Location(name, "is not a condition") for name, _ in conditions if name in _NOT_CONDITIONS
    ]:
        raise Invalid("The page shows objects that meet conditions.", locations=refused)
    return conditions


async def _answer(request: Request, path: str, query: _Query) -> tuple[Any, Any]:
    """Return the answer of the data API and no problem, or the problem and no answer.

    A reader of a class with owners can see objects, but not the plan.
    """
    for options in (_EXPLAIN, []):
        try:
            return await send(request, "GET", path, [*query.parameters, *options]), None
        except DataApiRefused as error:
            problem = error.problem
        if problem["status"] != _FORBIDDEN:
            break
    return None, problem


_READABLE: Final = ',:{}[]"-'


@dataclass(frozen=True, slots=True)
class _Address:
    """The address of the page, with some parameters replaced."""

    _pairs: Pairs

    def __call__(self, **replaced: str) -> str:
        unchanged = [pair for pair in self._pairs if pair[0] not in ("after", *replaced)]
        new = [pair for pair in replaced.items() if pair[1]]
        return f"/data?{urlencode([*unchanged, *new])}"

    def ordered(self, name: str, order: str) -> str:
        """Return the address that orders by a field: descending first, which indexes serve."""
        return self(order=name if order == f"-{name}" else f"-{name}")


def _readable(pairs: Pairs) -> Pairs:
    """Turn the rows of the builder into parameters of conditions; drop rows without a field."""
    rows = zip(*(_values(pairs, name) for name in ("field", "operator", "value")), strict=False)
    conditions = [Condition(*row).parameter for row in rows if row[0]]
    remaining = [
        (name, value) for name, value in pairs if name not in _BUILDER_PARAMETERS and value
    ]
    return [*remaining, *conditions]


def _values(pairs: Pairs, parameter: str) -> list[str]:
    return [value for name, value in pairs if name == parameter]


def _columns(view: ClassView, items: list[dict[str, Any]]) -> list[str]:
    """Name the members of all objects, the id first; fields in the order of the schema."""
    return list(dict.fromkeys(["id", *view.fields, *(name for item in items for name in item)]))


PAGE = Page("Data", "/data", "The objects of a class, and how a query finds them.", router)
