"""Problems, conditions and addresses in the Python clients, and the methods that both have."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest

from app.http.problems import PROBLEM_TYPES, ProblemType
from portolan_client import (
    AdminClient,
    AsyncAdminClient,
    AsyncClient,
    Client,
    Freshness,
    Problem,
    field,
)
from portolan_client.encoding import encode_json, path_of
from portolan_client.objects import get, get_many
from portolan_client.problems import problem_of


@pytest.mark.parametrize("type_", PROBLEM_TYPES, ids=lambda type_: type_.slug)
def test_every_problem_of_the_service_has_an_exception(type_: ProblemType) -> None:
    body = json.dumps({"type": type_.uri, "title": type_.title, "status": type_.status})
    problem = problem_of(type_.status, {}, body.encode())
    assert type(problem) is not Problem
    assert problem.kind == type_.slug


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"[" * 100_000, b'{"type": 1, "errors": 1}']
)
def test_a_refusal_without_a_problem_document_is_a_problem(body: bytes) -> None:
    assert problem_of(404, {}, body).status == 404


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: field("a") == 1 and field("b") == 2,
        lambda: not field("a").exists(),
        lambda: 1 < field("a") < 3,
        lambda: {field("a"): 1},
        lambda: field("a") in [field("b"), field("c")],
    ],
)
def test_a_condition_that_would_be_lost_is_refused(misuse: Any) -> None:
    with pytest.raises(TypeError):
        misuse()


def test_many_conditions_are_one_list() -> None:
    a, b, c = (field(name) == 1 for name in "abc")
    assert (
        (a & b & c).document
        == (a & (b & c)).document
        == {"and": [a.document, b.document, c.document]}
    )
    assert (a & (b | c)).document == {"and": [a.document, {"or": [b.document, c.document]}]}
    assert (~(a & b)).document == {"not": {"and": [a.document, b.document]}}


@pytest.mark.parametrize("segment", ["", ".", ".."])
def test_an_id_that_would_change_the_path_is_refused(segment: str) -> None:
    with pytest.raises(ValueError, match="address"):
        path_of("products", segment)


def test_addresses_are_encoded() -> None:
    assert path_of("a", "b/../c?#%") == "a/b%2F..%2Fc%3F%23%25"
    assert path_of("a", "query") == "a/%71uery"
    assert get("a", "b", fields=["y", "x", "y"]).path == "a/b?fields=x,y"
    assert get_many("a", ["b,c", "%", "&"]).path == "a?ids=b%252Cc,%2525,%26"
    with pytest.raises(ValueError, match="field"):
        get("a", "b", fields=[])


def test_a_value_cannot_inject_a_preference() -> None:
    freshness = Freshness(at_least='p", consistency="strong')
    assert freshness.headers == {
        "Prefer": 'at-least="p\\", consistency=\\"strong", handling=strict'
    }
    assert Freshness().headers == {}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {"a": 1j}])
def test_a_value_without_json_is_refused(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode_json(value)


@pytest.mark.parametrize(
    ("blocking", "asynchronous"), [(Client, AsyncClient), (AdminClient, AsyncAdminClient)]
)
def test_both_clients_have_the_same_methods(blocking: type, asynchronous: type) -> None:
    def public_methods(client: type) -> dict[str, list[str]]:
        methods = inspect.getmembers(client, callable)
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in methods
            if not name.startswith("_")
        }

    assert public_methods(blocking) == public_methods(asynchronous)
