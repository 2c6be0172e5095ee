"""Parser of incremental views in JSON, which reports every error with its location."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mediator.model.filters import Filter, Path, all_of, conjuncts, paths_of, with_paths
from mediator.query.filter_parser import FilterParser
from mediator.query.json_node import Node
from mediator.query.parser import parse_aggregate
from mediator.query.paths import NameScope, ResolvedPath, resolve_path
from mediator.schema.errors import invalid
from mediator.schema.ids import FIELD_NAME
from mediator.schema.tree import ClassSchema, Schema
from mediator.schema.types import TEXTS, FieldType
from mediator.views.view import Source, View, ViewJoin

__all__ = ["MAX_COLUMNS", "MAX_JOINS", "MAX_KEYS", "MAX_NAME_LENGTH", "parse_view"]

MAX_NAME_LENGTH: Final = 100
MAX_JOINS: Final = 8
MAX_KEYS: Final = 8
"""Maximum pairs of paths of one join."""

MAX_COLUMNS: Final = 64

_NUMBERS: Final = frozenset({FieldType.INTEGER, FieldType.FLOAT, FieldType.DECIMAL})


def parse_view(document: Any, schema: Schema) -> View:
    """Read a view; raises `Invalid` with the location of every mistake."""
    node = Node(document, "", [])
    node.shape("name", "filter", "join", "fields", "aggregate", required=("class",))
    class_ = _class(node["class"], schema)
    if class_ is None:
        raise invalid(node.errors)
    view = _ViewParser(node, schema, class_).read()
    if node.errors:
        raise invalid(node.errors)
    return view


@dataclass(slots=True)
class _Join:
    """A parsed join; `alias` is None for an antijoin, whose objects are not visible."""

    alias: str | None
    class_: ClassSchema
    filter: Filter | None
    keys: list[tuple[Path, Path]]


@dataclass(slots=True)
class _ViewParser:
    """Parses one view; results after an error are discarded."""

    _node: Node
    _schema: Schema
    _class: ClassSchema
    _aliases: dict[str, ClassSchema] = field(default_factory=dict)

    def read(self) -> View:
        node = self._node
        joins = self._joins(node["join"])
        scope = self._scope
        filter_ = FilterParser(scope).read(node["filter"])
        aggregate, results = parse_aggregate(node["aggregate"], scope)
        columns = self._columns(node["fields"], scope)
        used_paths = {path for join in joins for path, _ in join.keys}
        if aggregate is not None and results is not None:
            if node["fields"].given:
                node["fields"].error("does not go together with aggregate")
            columns = {**results.groups, **(results.computed or {})}
            used_paths |= aggregate.paths
        else:
            used_paths |= {target.path for target in columns.values()}
        pushed_filters, residual = self._split(filter_)
        used_paths |= paths_of(residual)
        return View(
            name=node["name"].read(
                "", _is_name, f"a string of {MAX_NAME_LENGTH} characters at most"
            ),
            source=Source(
                self._class.name, pushed_filters.get(""), self._values(scope, used_paths, None)
            ),
            joins=tuple([self._join(scope, join, used_paths, pushed_filters) for join in joins]),
            filter=residual,
            aggregate=aggregate,
            columns=columns,
            document=node.value,
        )

    @property
    def _scope(self) -> NameScope:
        return NameScope(self._class, dict(self._aliases))

    def _joins(self, node: Node) -> list[_Join]:
        nodes = node.elements(MAX_JOINS) if isinstance(node.value, list) else [node]
        joins = [self._read_join(element) for element in nodes] if node.given else []
        return [join for join in joins if join is not None]

    def _read_join(self, node: Node) -> _Join | None:
        if node["reference"].given:
            node.shape("as", "filter", "anti", required=("reference",))
            class_, keys = self._read_reference(node["reference"])
        else:
            node.shape("as", "filter", "anti", required=("class", "on"))
            class_ = _class(node["class"], self._schema)
            keys = [] if class_ is None else self._keys(node["on"], class_)
        is_anti = node["anti"].boolean()
        alias = self._alias(node["as"], is_anti=is_anti)
        if class_ is None:
            return None
        filter_ = FilterParser(NameScope(class_)).read(node["filter"])
        if alias is not None:
            self._aliases[alias] = class_
        return _Join(alias, class_, filter_, keys)

    def _read_reference(self, node: Node) -> tuple[ClassSchema | None, list[tuple[Path, Path]]]:
        target = resolve_path(node, self._scope)
        if target is None:
            return None, []
        if target.reference is None or target.type is not FieldType.REFERENCE:
            node.error("is no reference")
            return None, []
        class_ = self._schema.classes[target.reference]
        _check_lifetime(node, class_)
        return class_, [(target.path, ("id",))]

    def _keys(self, node: Node, class_: ClassSchema) -> list[tuple[Path, Path]]:
        if node.value == {}:
            node.error("must have a member: without one, everything would join with everything")
        keys: list[tuple[Path, Path]] = []
        scope = NameScope(class_)
        for name, member in node.members(MAX_KEYS, FIELD_NAME):
            inner = resolve_path(Node(name, member.pointer, member.errors), scope)
            outer = resolve_path(member, self._scope)
            if inner is None or outer is None:
                continue
            if not _are_comparable(inner, outer):
                member.error(f"is never equal to {name}, which is of another type")
            keys.append((outer.path, inner.path))
        return keys

    def _alias(self, node: Node, *, is_anti: bool) -> str | None:
        if is_anti:
            if node.given:
                node.error("names nothing: an antijoin adds no objects")
            return None
        if not node.given:
            node.error("is required")
            return None
        alias = node.read(None, _is_alias, f"a name like {FIELD_NAME.pattern}")
        if alias in self._class.fields or alias in self._aliases or alias == "id":
            node.error("is the name of something else")
            return None
        return alias if alias is None else str(alias)

    def _columns(self, node: Node, scope: NameScope) -> dict[str, ResolvedPath]:
        if not node.given:
            return {name: scope.find(name) for name in ("id", *self._class.fields)}
        columns: dict[str, ResolvedPath] = {}
        for element in node.elements(MAX_COLUMNS, min_elements=1):
            target = resolve_path(element, scope)
            if target is not None and element.value in columns:
                element.error("appears twice")
            elif target is not None:
                columns[element.value] = target
        return columns

    def _split(self, filter_: Filter | None) -> tuple[dict[str, Filter | None], Filter | None]:
        """Return the conditions on single sources, by alias, and the residual filter.

        The first source has the empty alias.
        """
        pushed: dict[str, list[Filter]] = {}
        residual: list[Filter] = []
        for conjunct in conjuncts(filter_):
            aliases = {path[0] if path[0] in self._aliases else "" for path in paths_of(conjunct)}
            if len(aliases) == 1:
                pushed.setdefault(aliases.pop(), []).append(conjunct)
            else:
                residual.append(conjunct)
        return {alias: all_of(conditions) for alias, conditions in pushed.items()}, all_of(residual)

    def _join(
        self,
        scope: NameScope,
        join: _Join,
        used_paths: Iterable[Path],
        pushed_filters: Mapping[str, Filter | None],
    ) -> ViewJoin:
        outer = tuple(path for path, _ in join.keys)
        if join.alias is None:
            inner_scope = NameScope(join.class_)
            inner = tuple(path for _, path in join.keys)
            values = {path: inner_scope.find(".".join(path)) for path in inner}
            return ViewJoin(Source(join.class_.name, join.filter, values), outer, inner, True)
        alias = join.alias
        inner = tuple((alias, *path) for _, path in join.keys)
        pushed_filter = pushed_filters.get(alias)
        filters = [
            join.filter,
            with_paths(pushed_filter, lambda path: path[1:]) if pushed_filter else None,
        ]
        filter_ = all_of(condition for condition in filters if condition is not None)
        values = self._values(scope, {*used_paths, *inner}, alias)
        return ViewJoin(Source(join.class_.name, filter_, values), outer, inner, False)

    def _values(
        self, scope: NameScope, used_paths: Iterable[Path], alias: str | None
    ) -> dict[Path, ResolvedPath]:
        """Return the used values of a source in the order of its paths; None: the first source."""
        values: dict[Path, ResolvedPath] = {}
        for path in sorted(used_paths):
            owner = path[0] if path[0] in self._aliases else None
            if owner == alias:
                target = scope.find(".".join(path))
                values[path] = target if alias is None else replace(target, path=path[1:])
        return values


def _class(node: Node, schema: Schema) -> ClassSchema | None:
    name = node.value if isinstance(node.value, str) else ""
    class_ = schema.classes.get(name)
    if class_ is not None:
        _check_lifetime(node, class_)
    elif node.given:
        node.unknown(f"there is no class {name}", name, schema.classes)
    return class_


def _check_lifetime(node: Node, class_: ClassSchema) -> None:
    if class_.ttl_s is not None:
        node.error(
            f"{class_.name} has a ttl_s, and the feed has no change for an object that expires"
        )


def _are_comparable(one: ResolvedPath, other: ResolvedPath) -> bool:
    if not (one.is_scalar and other.is_scalar):
        return False
    types = {one.type, other.type}
    # Values within a document can have any type.
    return None in types or len(types) == 1 or types <= _NUMBERS or types <= TEXTS


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_NAME_LENGTH


def _is_alias(value: Any) -> bool:
    return isinstance(value, str) and FIELD_NAME.fullmatch(value) is not None
