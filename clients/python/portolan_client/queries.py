"""Queries: objects that meet a condition, with joined objects, or groups of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from portolan_client.calls import Call, JsonObject, Reply
from portolan_client.encoding import Freshness, encode_json, path_of
from portolan_client.filters import Filter
from portolan_client.objects import JSON

__all__ = ["Aggregate", "Join", "Page", "ReverseJoin", "query"]


@dataclass(frozen=True, slots=True)
class Join:
    """Adds the object, or the list of objects, that `reference` points to, under the name `alias`.

    Attributes:
        reference: A field of the class, or of an earlier join (``employer.parent``).
        fields: The returned fields; None: all.
    """

    alias: str
    reference: str
    fields: Sequence[str] | None = None

    @property
    def document(self) -> JsonObject:
        document: JsonObject = {"as": self.alias, "reference": self.reference}
        return document if self.fields is None else {**document, "fields": list(self.fields)}


@dataclass(frozen=True, slots=True)
class ReverseJoin:
    """Adds the list of the objects whose `reference` points to an object, under the name `alias`.

    Attributes:
        class_name: The class of these objects.
        reference: Its field.
        where: A condition on them.
        order: Paths; a leading ``-`` means descending.
        limit: The maximum of objects added to one object, by default 10 and at most 100.
        fields: The returned fields; None: all.
    """

    alias: str
    class_name: str
    reference: str
    where: Filter | Mapping[str, Any] | None = None
    order: str | Sequence[str] = ()
    limit: int | None = None
    fields: Sequence[str] | None = None

    @property
    def document(self) -> JsonObject:
        return _without_null(
            {
                "as": self.alias,
                "class": self.class_name,
                "reference": self.reference,
                "filter": None if self.where is None else _condition(self.where),
                "order": _levels(self.order),
                "limit": self.limit,
                "fields": None if self.fields is None else list(self.fields),
            }
        )


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Groups objects, and computes values of each group.

    Attributes:
        compute: The function and path of each value by its name: ``{"mean": ("avg", "hits")}``, or
            ``("count", "*")``.
        group: The paths whose values form a group; none: all objects form one.
        having: A condition on the results.
    """

    compute: Mapping[str, tuple[str, str]]
    group: Sequence[str] = ()
    having: Filter | Mapping[str, Any] | None = None

    @property
    def document(self) -> JsonObject:
        compute = {name: {function: path} for name, (function, path) in self.compute.items()}
        document: JsonObject = {"group": list(self.group), "compute": compute}
        return document if self.having is None else {**document, "filter": _condition(self.having)}


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the objects, or groups, that a query finds.

    Attributes:
        next: The cursor of the next page; None: this is the last.
        explain: How the query was executed, if that was requested.
        following: The call of the next page.
    """

    items: Sequence[JsonObject]
    next: str | None = None
    explain: JsonObject | None = None
    following: Call[Page] | None = field(default=None, repr=False, compare=False)


def query(
    class_name: str,
    *,
    where: Filter | Mapping[str, Any] | None = None,
    order: str | Iterable[str] = (),
    limit: int | None = None,
    after: str | None = None,
    fields: Iterable[str] | None = None,
    join: Join | ReverseJoin | Iterable[Join | ReverseJoin] = (),
    aggregate: Aggregate | None = None,
    allow_scan: bool = False,
    explain: bool = False,
    freshness: Freshness | None = None,
) -> Call[Page]:
    """Find objects of a class, or groups of them.

    Args:
        class_name: The class.
        where: A condition; a mapping is one in the service's form.
        order: Paths; a leading ``-`` means descending.
        limit: Objects in a page, by default 100 and at most 1,000.
        after: The cursor of the previous page (`Page.next`).
        fields: The returned fields.
        join: Objects that are added by a reference, of the class or to it.
        aggregate: Groups instead of objects.
        allow_scan: Whether all objects of the class may be read.
        explain: Whether the result describes how the query was executed.
        freshness: How fresh the result has to be.

    Raises:
        Invalid: A condition is malformed, or no index serves it (`kind` is ``needs-scan``).
        NotFound: The class does not exist.
    """
    joins = [join] if isinstance(join, Join | ReverseJoin) else join
    members: JsonObject = {
        "filter": None if where is None else _condition(where),
        "order": _levels(order),
        "limit": limit,
        "after": after,
        "fields": None if fields is None else list(fields),
        "join": [join_.document for join_ in joins] or None,
        "aggregate": None if aggregate is None else aggregate.document,
        "allow_scan": allow_scan or None,
        "explain": explain or None,
    }
    headers = {**JSON, **(freshness.headers if freshness else {})}
    return _call(f"{path_of(class_name)}/query", _without_null(members), headers)


def _call(path: str, body: JsonObject, headers: Mapping[str, str]) -> Call[Page]:
    return Call("POST", path, partial(_page, path, body, headers), headers, encode_json(body))


def _page(path: str, body: JsonObject, headers: Mapping[str, str], reply: Reply) -> Page:
    document = reply.json_object()
    cursor = document.get("next")
    following = _call(path, {**body, "after": cursor}, headers) if cursor else None
    return Page(document["items"], cursor, document.get("explain"), following)


def _without_null(members: JsonObject) -> JsonObject:
    return {name: value for name, value in members.items() if value is not None}


def _levels(order: str | Iterable[str]) -> list[Any] | None:
    levels = [order] if isinstance(order, str) else order
    return [_level(path) for path in levels] or None


def _condition(where: Filter | Mapping[str, Any]) -> JsonObject:
    return where.document if isinstance(where, Filter) else dict(where)


def _level(path: str) -> str | list[str]:
    return [path[1:], "desc"] if path.startswith("-") else path
