"""References that writes announce: each object, or only the class if there are very many."""

from __future__ import annotations

from typing import Final

from mediator.model.operations import Put, Update
from mediator.model.operators import Operator, OperatorCall
from mediator.routing.model import ClassRoute
from mediator.schema.foreign_keys import ForeignKey
from mediator.schema.tree import ClassSchema, OnDelete
from mediator.transactions.foreign_keys import referenced_objects

KEY: Final = ForeignKey("books", "by", "authors", OnDelete.REFUSE, is_array=True)
ROUTES: Final = {"books": ClassRoute(ClassSchema("books", {}), 1, (), foreign_keys=(KEY,))}


def put(*ids: str) -> Put:
    return Put("db", "books", "b", "op", values={"by": [*ids]})


def test_each_element_is_announced_once() -> None:
    assert referenced_objects(ROUTES, [put("a", "b", "a"), put("b")]) == [
        ("authors", "a"),
        ("authors", "b"),
    ]


def test_only_operators_that_add_elements_refer() -> None:
    for operator, expected in ((Operator.PUSH, [("authors", "a")]), (Operator.REMOVE, [])):
        call = OperatorCall("by", operator, "a")
        assert (
            referenced_objects(ROUTES, [Update("db", "books", "b", "op", operators=(call,))])
            == expected
        )


def test_very_many_objects_are_announced_by_their_class() -> None:
    writes = [put(*(f"{n}-{i}" for i in range(100))) for n in range(10)]
    assert len(referenced_objects(ROUTES, writes)) == 1_000
    assert referenced_objects(ROUTES, [*writes, put("one more")]) == [("authors", "")]
