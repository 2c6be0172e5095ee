"""The views of one database over its objects: the effect of each change on each result.

A change costs only the views that it may affect: an index over the conditions on single sources
finds these by the object's values, before and after. A failing view is stopped, and the others
continue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from mediator.base.errors import Invalid
from mediator.model.change import Change
from mediator.model.effects import Image
from mediator.model.evaluate import Lookup
from mediator.query.access_predicates import access_predicates_of
from mediator.query.predicate_index import PredicateIndex
from mediator.routing.model import ClassRoute
from mediator.views.network import Network
from mediator.views.nodes import RowChange
from mediator.views.objects import StoredObjects
from mediator.views.view import View

__all__ = ["MAX_BYTES", "MAX_OBJECTS", "MAX_UNINDEXED", "Evaluation"]

MAX_OBJECTS: Final = 200_000
"""Maximum objects of all classes that the views of a database read."""

MAX_BYTES: Final = 256 * 2**20
"""Approximate maximum size of their values."""


MAX_UNINDEXED: Final = 1_000
"""Maximum sources of a class without an index on their filters: every change tries them all."""


class _SourceName(NamedTuple):
    """A source of a view, by its number; a view's sources are updated in this order."""

    view: str
    number: int


class Evaluation:
    """Evaluates views, by id; `routes` are the classes that they read.

    Attributes:
        stopped: Reasons of stopped views, by id; these views are removed.
    """

    def __init__(self, routes: Mapping[str, ClassRoute]) -> None:
        self._objects = {name: StoredObjects(route) for name, route in routes.items()}
        self._indexes = {name: PredicateIndex[_SourceName]() for name in routes}
        self._networks: dict[str, Network] = {}
        self._touched: dict[str, None] = {}
        self.stopped: dict[str, str] = {}

    @property
    def routes(self) -> dict[str, ClassRoute]:
        return {name: objects.route for name, objects in self._objects.items()}

    @property
    def views(self) -> dict[str, View]:
        return {id_: network.view for id_, network in self._networks.items()}

    def objects_of(self, class_name: str) -> StoredObjects:
        return self._objects[class_name]

    def oversized(self) -> str | None:
        """Return the largest class if the objects of all classes exceed the bounds."""
        objects = self._objects.values()
        if (
            sum(map(len, objects)) <= MAX_OBJECTS
            and sum(stored.bytes for stored in objects) <= MAX_BYTES
        ):
            return None
        return max(objects, key=lambda stored: (stored.bytes, len(stored))).route.schema.name

    def add(self, id_: str, view: View) -> Iterator[None]:
        """Evaluate a view over the existing objects, step by step, as this can take long.

        No changes may be applied meanwhile.
        """
        network = Network(view)
        try:
            self._check_indexed(view)
            for number in view.loading_order:
                class_name = view.sources[number].class_name
                for image in self._objects[class_name].images():
                    network.update(number, None, image.lookup)
                    yield
            network.take()
        except Invalid as error:
            self.stopped[id_] = error.detail
            return
        self._networks[id_] = network
        for number, source in enumerate(view.sources):
            self._indexes[source.class_name].put(_SourceName(id_, number), source.filter)

    def discard(self, id_: str) -> None:
        network = self._networks.pop(id_, None)
        self._touched.pop(id_, None)
        for number, source in enumerate(network.view.sources if network else ()):
            self._indexes[source.class_name].discard(_SourceName(id_, number))

    def apply(self, change: Change) -> None:
        """Apply a change; ignore changes of classes that no view reads."""
        objects = self._objects.get(change.class_name)
        if objects is None:
            return
        try:
            effect = objects.apply(change)
        except Invalid as error:
            self._stop_class(change.class_name, error.detail)
            return
        if effect is None:
            return
        index, before, after = self._indexes[change.class_name], effect.before, effect.after
        names = {*index.uncovered, *index.met(before), *index.met(after)}
        for name in sorted(names):
            self._update(name, _lookup(before), _lookup(after))

    def rows(self, id_: str) -> dict[bytes, int]:
        """Return the result of a view as of the last `take`."""
        return self._networks[id_].rows

    def take(self) -> dict[str, list[RowChange]]:
        """Return the changes of results since the last call, by view."""
        changes_by_view: dict[str, list[RowChange]] = {}
        for id_ in self._touched.keys() - self.stopped.keys():
            try:
                changes = self._networks[id_].take()
            except Invalid as error:
                self.stopped[id_] = error.detail
            else:
                if changes:
                    changes_by_view[id_] = changes
        self._touched = {}
        for id_ in self.stopped:
            self.discard(id_)
        return changes_by_view

    def _check_indexed(self, view: View) -> None:
        """Raise `Invalid` if too many conditions on one class are not indexed."""
        for source in view.sources:
            uncovered = self._indexes[source.class_name].uncovered
            if access_predicates_of(source.filter) is None and len(uncovered) >= MAX_UNINDEXED:
                raise Invalid(
                    f"There are {MAX_UNINDEXED:,} conditions on {source.class_name} that no index"
                    " finds, so that they are evaluated for each change of it."
                )

    def _update(self, name: _SourceName, before: Lookup | None, after: Lookup | None) -> None:
        network = self._networks.get(name.view)
        if network is None or name.view in self.stopped:
            return
        self._touched[name.view] = None
        try:
            network.update(name.number, before, after)
        except Invalid as error:
            self.stopped[name.view] = error.detail

    def _stop_class(self, class_name: str, detail: str) -> None:
        for id_, network in self._networks.items():
            if class_name in network.view.class_names:
                self.stopped[id_] = detail


def _lookup(image: Image | None) -> Lookup | None:
    return None if image is None else image.lookup
