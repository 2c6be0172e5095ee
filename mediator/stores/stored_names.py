"""Stored names: translates values of the port from schema names to stored names, and back.

A field keeps its stored name for good, whatever it is called in the schema. Only names change:
values, versions and groups are the same objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from mediator.model.filters import Filter, Path, with_paths
from mediator.model.query import Aggregate, OrderBy
from mediator.schema.unique import constraint_fields, constraint_name
from mediator.stores.port import (
    Claims,
    Fragment,
    Pushdown,
    Read,
    Record,
    SearchRequest,
    SemiJoin,
    TakenClaim,
    Write,
    WriteResult,
)

__all__ = ["StoredNames", "names_of", "stored_fragment"]

_MAX_FRAGMENTS: Final = 4096


class StoredNames:
    """The names of one fragment's fields, in both directions.

    Attributes:
        fragment: The fragment with stored names as its field names.
    """

    __slots__ = ("_public", "_stored", "fragment")

    def __init__(self, fragment: Fragment) -> None:
        self._stored = fragment.stored_names
        self._public = {stored: name for name, stored in self._stored.items()}
        self.fragment = self._as_stored(fragment) if self._stored else fragment

    def _as_stored(self, fragment: Fragment) -> Fragment:
        fields = {
            (stored := self._name(name)): replace(field, name=stored)
            for name, field in fragment.fields.items()
        }
        groups = {group: self._stored_all(names) for group, names in fragment.groups.items()}
        unique = tuple([self._stored_all(names) for names in fragment.unique])
        indexes = tuple([self._stored_all(names) for names in fragment.indexes])
        return replace(
            fragment,
            fields=fields,
            groups=groups,
            unique=unique,
            indexes=indexes,
            stored_names={},
        )

    def _stored_all(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple([self._name(name) for name in names])

    def _stored_optional(self, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if names is None else self._stored_all(names)

    def stored_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {self._stored.get(name, name): value for name, value in values.items()}

    def public_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values by public names; stored fields without a name are left out."""
        stored_fields = self.fragment.fields
        return {
            self._public.get(stored, stored): value
            for stored, value in values.items()
            if stored in stored_fields
        }

    def read(self, call: Read) -> Read:
        return Read(self.fragment, call.id, self._stored_optional(call.fields))

    def record(self, record: Record) -> Record:
        return Record(
            record.id,
            record.creation_version,
            record.versions,
            self.public_values(record.values),
            record.intent,
            record.joint,
        )

    def write(self, call: Write) -> Write:
        return replace(
            call,
            fragment=self.fragment,
            values=self.stored_values(call.values),
            unset=self._stored_all(call.unset),
            operators=tuple([replace(c, field=self._name(c.field)) for c in call.operators]),
            returning=self._stored_optional(call.returning),
            claims=_claims(call.claims, self._stored),
        )

    def public_write(self, call: Write) -> Write:
        """Return a write on `fragment` by public names, without fields that have none."""
        stored_fields, public = self.fragment.fields, self._public
        operators = [c for c in call.operators if c.field in stored_fields]
        returning = call.returning
        if returning:  # empty: all fields
            returning = tuple([public.get(n, n) for n in returning if n in stored_fields]) or None
        return replace(
            call,
            values=self.public_values(call.values),
            unset=tuple([public.get(n, n) for n in call.unset if n in stored_fields]),
            operators=tuple([replace(c, field=public.get(c.field, c.field)) for c in operators]),
            returning=returning,
            claims=_claims(call.claims, public),
        )

    def result(self, result: WriteResult) -> WriteResult:
        failure = result.failure
        if failure is not None:
            failure = replace(failure, field=self._public.get(failure.field, failure.field))
        values, taken = self.public_values(result.values), self.taken_claim(result.taken)
        return replace(result, values=values, failure=failure, taken=taken)

    def taken_claim(self, claim: TakenClaim | None) -> TakenClaim | None:
        if claim is None:
            return None
        return replace(claim, constraint=_constraint(claim.constraint, self._public))

    def filter(self, filter_: Filter | None) -> Filter | None:
        return None if filter_ is None else _rename_filter(filter_, self._stored)

    def public_filter(self, filter_: Filter | None) -> Filter | None:
        return None if filter_ is None else _rename_filter(filter_, self._public)

    def order(self, order: tuple[OrderBy, ...]) -> tuple[OrderBy, ...]:
        return tuple(
            [OrderBy(_path(level.path, self._stored), level.descending) for level in order]
        )

    def pushdown(self, plan: Pushdown) -> Pushdown:
        return replace(
            plan,
            pushed=self.public_filter(plan.pushed),
            residual=self.public_filter(plan.residual),
            index=plan.index and tuple([self._public.get(name, name) for name in plan.index]),
        )

    def aggregate(self, aggregate: Aggregate) -> Aggregate:
        """Return the computations; stores do not evaluate conditions on groups (`having`)."""
        compute = {
            result: computation
            if computation.path is None
            else replace(computation, path=self._path(computation.path))
            for result, computation in aggregate.compute.items()
        }
        return Aggregate(tuple([self._path(path) for path in aggregate.group]), compute)

    def search(self, find: SearchRequest) -> SearchRequest:
        return replace(
            find,
            fragment=self.fragment,
            filter=self.filter(find.filter),
            order=self.order(find.order),
            fields=self._stored_optional(find.fields),
            semi_joins=tuple([self.semi_join(join) for join in find.semi_joins]),
        )

    def semi_join(self, join: SemiJoin) -> SemiJoin:
        inner_names = names_of(join.fragment)
        return SemiJoin(
            self._name(join.reference),
            inner_names.fragment,
            inner_names.filter(join.filter),
            tuple([inner_names.semi_join(inner) for inner in join.inner]),
        )

    def _name(self, name: str) -> str:
        return self._stored.get(name, name)

    def _path(self, path: Path) -> Path:
        return _path(path, self._stored)


names_of = lru_cache(maxsize=_MAX_FRAGMENTS)(StoredNames)
"""The names of a fragment; fragments are compared by identity."""


def stored_fragment(fragment: Fragment) -> Fragment:
    """Return a fragment with stored names; usually the same object."""
    return names_of(fragment).fragment if fragment.stored_names else fragment


def _claims(claims: Claims, names: Mapping[str, str]) -> Claims:
    return {_constraint(name, names): claim for name, claim in claims.items()} if claims else claims


def _constraint(constraint: str, names: Mapping[str, str]) -> str:
    return constraint_name([names.get(name, name) for name in constraint_fields(constraint)])


def _path(path: Path, names: Mapping[str, str]) -> Path:
    head = names.get(path[0])
    return path if head is None else (head, *path[1:])


def _rename_filter(filter_: Filter, names: Mapping[str, str]) -> Filter:
    return with_paths(filter_, lambda path: _path(path, names))
