"""Queries by the names of a former schema, as queries by the present ones, and their results back.

The client chooses aliases and names of results: none is a field of the version, but one may be a
present field. It then gets another name while the query is executed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count
from typing import Final, TypeVar

from mediator.base.errors import Conflict
from mediator.model.filters import ID, Filter, Path, with_paths
from mediator.model.operations import Outcome
from mediator.model.query import Aggregate, Join, OrderBy, Query, ReverseJoin
from mediator.query.execution import Item, QueryResult
from mediator.routing.former_schemas import ClassNames, FormerSchema
from mediator.schema.types import Values

__all__ = ["PinnedQuery", "changed_meanwhile", "former_outcome", "former_values"]

_T = TypeVar("_T")

_NAME_LENGTH: Final = 63


def former_values(values: Values | None, names: ClassNames) -> Values | None:
    """Return values by the names of a version; fields that it lacks are left out."""
    if values is None:
        return None
    former = names.former
    return {former[name]: value for name, value in values.items() if name in former}


def changed_meanwhile(class_name: str) -> Conflict:
    """Return the error of a request whose data was read by another schema than planned."""
    return Conflict(f"The schema of {class_name} was changed meanwhile; try again.")


def former_outcome(schema: FormerSchema, class_name: str, outcome: Outcome) -> Outcome:
    """Return the outcome of a read by the names of a version.

    Raises:
        Conflict: It was read by a schema that changed meanwhile, and has its names.
    """
    if outcome.schema_version != schema.now.classes[class_name].schema_version:
        raise changed_meanwhile(class_name)
    return replace(outcome, values=former_values(outcome.values, schema.names[class_name]))


class PinnedQuery:
    """One query and the names that it uses.

    Attributes:
        present: The query by present names.
    """

    def __init__(self, schema: FormerSchema, query: Query) -> None:
        self._schema = schema
        self._class_name = query.class_name
        self._names = schema.names[query.class_name]
        joins: list[Join | ReverseJoin] = [*query.joins, *query.list_joins, *query.reverse_joins]
        self._classes = {join.alias: join.class_name for join in joins}
        computed = query.aggregate.compute if query.aggregate else ()
        field_names = schema.now.classes[query.class_name].schema.fields
        self._unique_names = _free([*self._classes, *computed], field_names)
        self._aliases = {chosen: alias for alias, chosen in self._unique_names.items()}
        self.present = self._translate(query)

    def _translate(self, query: Query) -> Query:
        return replace(
            query,
            filter=self._filter(query.filter),
            order=tuple([self._order(level) for level in query.order]),
            fields=_fields(query.fields, self._names),
            joins=tuple([self._join(join) for join in query.joins]),
            list_joins=tuple([self._join(join) for join in query.list_joins]),
            reverse_joins=tuple([self._reverse_join(join) for join in query.reverse_joins]),
            aggregate=None if query.aggregate is None else self._aggregate(query.aggregate),
            as_documents=False,  # the names in documents would have to be replaced
        )

    def _path(self, path: Path) -> Path:
        head, *rest = path
        if head in self._classes:
            names = self._schema.names[self._classes[head]]
            return (self._unique_names[head], *_within(names, tuple(rest)))
        if head in self._unique_names:
            return (self._unique_names[head],)
        return _within(self._names, path)

    def _filter(self, filter_: Filter | None) -> Filter | None:
        return None if filter_ is None else with_paths(filter_, self._path)

    def _order(self, level: OrderBy) -> OrderBy:
        return replace(level, path=self._path(level.path))

    def _join(self, join: Join) -> Join:
        return Join(
            self._unique_names[join.alias],
            self._path(join.reference),
            join.class_name,
            _fields(join.fields, self._schema.names[join.class_name]),
        )

    def _reverse_join(self, join: ReverseJoin) -> ReverseJoin:
        names = self._schema.names[join.class_name]
        inner = join.filter
        return replace(
            join,
            alias=self._unique_names[join.alias],
            reference=names.present[join.reference],
            filter=None if inner is None else with_paths(inner, lambda path: _within(names, path)),
            order=tuple([replace(o, path=_within(names, o.path)) for o in join.order]),
            fields=_fields(join.fields, names),
        )

    def _aggregate(self, aggregate: Aggregate) -> Aggregate:
        compute = {
            self._unique_names[name]: computation
            if computation.path is None
            else replace(computation, path=self._path(computation.path))
            for name, computation in aggregate.compute.items()
        }
        groups = tuple([self._path(path) for path in aggregate.group])
        return Aggregate(groups, compute, self._filter(aggregate.having))

    def result(self, result: QueryResult) -> QueryResult:
        """Return a result by the names of the version; rows of an aggregate have no names.

        Raises as `former_outcome`.
        """
        return replace(result, items=tuple([self._item(item) for item in result.items]))

    def _item(self, item: Item) -> Item:
        joined = {
            alias: outcome and former_outcome(self._schema, class_name, outcome)
            for alias, class_name, outcome in self._of_joins(item.joined)
        }
        lists = {
            alias: [former_outcome(self._schema, class_name, outcome) for outcome in outcomes]
            for alias, class_name, outcomes in self._of_joins(item.lists)
        }
        own = former_outcome(self._schema, self._class_name, item.outcome)
        return Item(own, joined, lists)

    def _of_joins(self, joined: Mapping[str, _T]) -> Iterable[tuple[str, str, _T]]:
        """Yield the client's alias, the class and the value of each join."""
        for chosen, value in joined.items():
            alias = self._aliases[chosen]
            yield alias, self._classes[alias], value


def _within(names: ClassNames, path: Path) -> Path:
    return path if path == ID else (names.present[path[0]], *path[1:])


def _fields(fields: tuple[str, ...] | None, names: ClassNames) -> tuple[str, ...] | None:
    return None if fields is None else tuple(sorted(names.all_present(fields)))


def _free(names: Iterable[str], field_names: Iterable[str]) -> dict[str, str]:
    """Map chosen names to free ones: each to itself unless it is taken."""
    names = [*names]
    used = {*field_names, *names}
    renames = {}
    for name in names:
        renames[name] = name
        if name in field_names:
            ends = (f"_{number}" for number in count(2))
            renames[name] = next(
                new for end in ends if (new := name[: _NAME_LENGTH - len(end)] + end) not in used
            )
            used.add(renames[name])
    return renames
