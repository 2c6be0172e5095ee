"""Laws of incremental views: a view equals full evaluation after every prefix of the feed."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mediator.model.change import Change
from mediator.model.exact import decimal_of
from mediator.model.operations import Outcome
from mediator.query.aggregation import Sum
from mediator.schema.types import Values
from mediator.views.evaluation import Evaluation
from mediator.views.extremes import Extreme
from mediator.views.parser import parse_view
from mediator.views.results import difference
from tests.unit.views.shop import (
    GROUPS,
    SCHEMA,
    canonical,
    changes_of,
    full_evaluation,
    routes,
    update_of,
)

IDS = ("a", "b", "c")
CITIES = st.sampled_from(["Rome", "Oslo"])
SMALL = st.integers(0, 2)
NOTES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {}, optional={"k": st.sampled_from([1, 1.5, "1", True, None, "Rome"])}
)
VALUES: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "customers": {"name": CITIES, "city": CITIES, "rank": SMALL},
    "orders": {
        "customer": st.sampled_from(IDS),
        "amount": SMALL,
        "price": st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16]),
        "total": st.sampled_from([Decimal("0.1"), Decimal(2), Decimal("1E+20")]),
        "tags": st.lists(st.sampled_from("xyz"), unique=True).map(sorted),
        "note": NOTES,
    },
    "returns": {"order": st.sampled_from(IDS), "count": SMALL},
}


def objects_of(class_name: str) -> st.SearchStrategy[Values]:
    """Return a strategy of objects: most fields have a value, one can be null, another missing."""
    fields = VALUES[class_name]
    names = st.sampled_from([*fields, *[""] * len(fields)])
    return st.tuples(st.fixed_dictionaries(fields), names, names).map(
        lambda drawn: {
            name: None if name == drawn[1] else value
            for name, value in drawn[0].items()
            if name != drawn[2]
        }
    )


# Paths for conditions, rows and aggregates, with constants.
PATHS: dict[str, list[tuple[str, st.SearchStrategy[Any]]]] = {
    "customers": [("id", st.sampled_from(IDS)), ("city", CITIES), ("rank", SMALL)],
    "orders": [
        ("id", st.sampled_from(IDS)),
        ("customer", st.sampled_from(IDS)),
        ("amount", SMALL),
        ("price", st.sampled_from([0.1, 0.2, 1e16])),
        ("total", st.sampled_from(["0.1", "2"])),
        ("note.k", st.sampled_from([1, "1", True])),
    ],
    "returns": [("id", st.sampled_from(IDS)), ("order", st.sampled_from(IDS)), ("count", SMALL)],
}
JOINS: dict[str, list[dict[str, Any]]] = {
    "customers": [
        {"class": "orders", "on": {"customer": "id"}},
        {"class": "customers", "on": {"city": "name"}},
    ],
    "orders": [
        {"reference": "customer"},
        {"class": "returns", "on": {"order": "id"}},
        {"class": "returns", "on": {"order": "id", "count": "amount"}},
        {"class": "orders", "on": {"amount": "amount"}},
        {"class": "customers", "on": {"city": "note.k"}},
    ],
    "returns": [{"reference": "order"}, {"class": "customers", "on": {"rank": "count"}}],
}


@st.composite
def filters(draw: st.DrawFn, paths: list[tuple[str, st.SearchStrategy[Any]]]) -> dict[str, Any]:
    def leaf() -> dict[str, Any]:
        path, constants = draw(st.sampled_from(paths))
        operator = draw(st.sampled_from(["eq", "ne", "ge", "lt", "in", "exists"]))
        if operator == "exists":
            return {"exists": path}
        if operator == "in":
            return {"in": [path, [draw(constants), draw(constants)]]}
        return {operator: [path, draw(constants)]}

    match draw(st.integers(0, 5)):
        case 0:
            return {"or": [leaf(), leaf()]}
        case 1:
            return {"not": leaf()}
        case 2 | 3:
            return {"and": [leaf(), leaf()]}
    return leaf()


@st.composite
def views(draw: st.DrawFn) -> dict[str, Any]:
    class_name = draw(st.sampled_from(sorted(VALUES)))
    paths = list(PATHS[class_name])
    view: dict[str, Any] = {"class": class_name}
    joins: list[dict[str, Any]] = []
    for number in range(draw(st.sampled_from([0, 1, 1, 2]))):
        join = dict(draw(st.sampled_from(JOINS[class_name])))
        target = join.get("class") or {"orders": "customers", "returns": "orders"}[class_name]
        if draw(st.integers(0, 2)) == 0:
            join["filter"] = draw(filters(PATHS[target]))
        if draw(st.integers(0, 2)):
            join["as"] = f"j{number}"
            paths += [(f"j{number}.{path}", constants) for path, constants in PATHS[target]]
        else:
            join["anti"] = True
        joins.append(join)
    if joins:
        view["join"] = joins
    if draw(st.integers(0, 2)) == 0:
        view["filter"] = draw(filters(paths))
    names = [path for path, _ in paths]
    if draw(st.booleans()):
        view["aggregate"] = draw(aggregates(names))
    elif draw(st.booleans()):
        containers = ["note", "tags"] if class_name == "orders" else []
        view["fields"] = draw(
            st.lists(st.sampled_from(names + containers), min_size=1, unique=True)
        )
    return view


@st.composite
def aggregates(draw: st.DrawFn, names: list[str]) -> dict[str, Any]:
    numbers = [n for n in names if n.endswith(("amount", "price", "total", "rank", "count"))]
    compute: dict[str, Any] = {"n": {"count": "*"}}
    for number in range(draw(st.integers(0, 3))):
        function = draw(st.sampled_from(["count", "sum", "avg", "min", "max"]))
        candidates = numbers if function in {"sum", "avg"} else names
        compute[f"r{number}"] = {function: draw(st.sampled_from(candidates or names))}
    aggregate: dict[str, Any] = {"compute": compute}
    if draw(st.integers(0, 2)):
        aggregate["group"] = draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
    if draw(st.integers(0, 2)) == 0:
        aggregate["filter"] = {"gt": ["n", draw(st.integers(0, 2))]}
    return aggregate


OPERATIONS = st.sampled_from(sorted(VALUES)).flatmap(
    lambda name: st.tuples(
        st.just(name),
        st.sampled_from(IDS),
        st.sampled_from(["put", "put", "put", "update", "update", "delete", "kill"]),
        objects_of(name),
    )
)


class Feed:
    """A feed, its objects by class and id, and the view as published."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.objects: dict[str, dict[str, Values]] = {name: {} for name in VALUES}
        self.versions: dict[tuple[str, str], int] = {}
        self.last: dict[tuple[str, str], list[Change]] = {}
        self.published: Counter[bytes] = Counter()
        self.version = 0
        self.evaluation = self.load()

    def load(self) -> Evaluation:
        """Evaluate the view over the current objects, as a new holder does, and publish it."""
        evaluation = Evaluation(routes())
        for class_name, objects in self.objects.items():
            for id_, values in objects.items():
                version = self.versions[class_name, id_]
                versions = dict.fromkeys(GROUPS[class_name], version)
                evaluation.objects_of(class_name).put(Outcome(id_, dict(values), versions))
        for _ in evaluation.add("view", parse_view(self.document, SCHEMA)):
            pass
        assert not evaluation.stopped
        self.publish(difference(dict(self.published), evaluation.rows("view")))
        return evaluation

    def publish(self, changes: list[tuple[bytes, int, int]]) -> None:
        for row, times, count in changes:
            assert times
            self.published[row] += times
            assert self.published[row] == count >= 0
            if not count:
                del self.published[row]

    def write(self, class_name: str, id_: str, kind: str, values: Values) -> None:
        before = self.objects[class_name].get(id_)
        self.version += 1
        if kind == "update" and before is not None:
            groups = GROUPS[class_name].values()
            names = max(groups, key=lambda names: len(values.keys() & set(names)))
            touched = {name: value for name, value in values.items() if name in names}
            if not touched:
                return
            changes = [update_of(class_name, id_, before, touched, self.version)]
            self.objects[class_name][id_] = before | touched
        elif kind in {"put", "update"}:
            changes = changes_of(class_name, id_, before, values, self.version)
            self.objects[class_name][id_] = values
        elif before is not None:
            changes = changes_of(class_name, id_, before, None, self.version)
            del self.objects[class_name][id_]
            self.last.pop((class_name, id_), None)
        else:
            return
        self.versions[class_name, id_] = self.version
        for change in changes:
            self.evaluation.apply(change)
        for change in self.last.get((class_name, id_), ()):
            self.evaluation.apply(change)  # a redelivered change has no effect
        self.last[class_name, id_] = [change for change in changes if change.after is not None]
        self.publish(self.evaluation.take().get("view", []))


@settings(max_examples=300)
@given(views(), st.lists(OPERATIONS, min_size=12, max_size=30))
def test_a_view_equals_full_evaluation_after_every_prefix(
    document: dict[str, Any], operations: list[tuple[str, str, str, Values]]
) -> None:
    feed = Feed(document)
    assert canonical(feed.published) == full_evaluation(document, feed.objects)
    for class_name, id_, kind, values in operations:
        if kind == "kill":
            feed.evaluation = feed.load()
        else:
            feed.write(class_name, id_, kind, values)
        assert canonical(feed.published) == full_evaluation(document, feed.objects)


@given(st.lists(st.floats(-1e300, 1e300) | st.integers(-5, 5), max_size=20), st.data())
def test_removing_numbers_from_a_sum_is_exact(numbers: list[Any], data: Any) -> None:
    removed = (
        data.draw(st.lists(st.sampled_from(range(len(numbers))), unique=True)) if numbers else []
    )
    total = Sum()
    for number in numbers:
        total.add(number)
    for index in removed:
        total.add(numbers[index], -1)
    remaining = [number for index, number in enumerate(numbers) if index not in removed]
    exact = sum(Fraction(decimal_of(number)) for number in remaining)
    assert total.result() == (
        (float(exact) if _has_float(remaining) else exact) if remaining else None
    )


def _has_float(numbers: list[Any]) -> bool:
    return any(isinstance(number, float) for number in numbers)


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), max_size=200), st.booleans())
def test_an_extreme_follows_additions_and_removals(
    steps: list[tuple[int, bool]], greatest: bool
) -> None:
    extreme, present = Extreme(greatest=greatest), Counter[int]()
    for value, is_added in steps:
        if is_added or present[value]:
            times = 1 if is_added else -1
            extreme.add(value, times)
            present[value] += times
        values = list(present.elements())
        assert extreme.result() == ((max if greatest else min)(values) if values else None)
