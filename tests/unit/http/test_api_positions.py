"""Positions of writes, as clients carry them."""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from types import SimpleNamespace
from typing import Any, Final

import pytest

from app.api.cursors import parse_position, position_of
from app.http.problems import HttpError
from mediator.model.operations import Outcome

PLANNED: Final[Any] = SimpleNamespace(resource=SimpleNamespace(database="news", name="articles"))


@pytest.mark.parametrize("id_", ["a", "ab", "abc", "~~~", ">?>?", "ÿþ", "日本"])
def test_a_position_is_safe_in_an_address_and_survives_encoding(id_: str) -> None:
    position = position_of(PLANNED, Outcome(id_, None, {"main": 7, "hits": 2**62}))
    assert re.fullmatch("[A-Za-z0-9_-]+", position)
    assert parse_position(position, "news") == {("articles", id_): {"main": 7, "hits": 2**62}}


@pytest.mark.parametrize(
    "text",
    [
        "news/articles/a#main" + ":111" * 300 + "!",
        "news/articles/a#" + "main:111" * 150 + "!",
        "news/articles/a#main:1" + "#a:1" * 300 + "!",
        "news/articles/a#main:1,",
        "news/articles/a#,main:1",
        "news/articles/a#main:\u0661",
    ],
)
def test_a_malformed_position_is_refused(text: str) -> None:
    """With an ambiguous pattern of versions, backtracking would make some of these endless."""
    position = urlsafe_b64encode(text.encode()).rstrip(b"=").decode()
    with pytest.raises(HttpError) as caught:
        parse_position(position, "news")
    assert caught.value.locations[0].pointer == "Prefer"


def test_positions_with_special_characters_of_base64_are_safe() -> None:
    ids = [f"{a}{b}{c}" for a in "~?>" for b in "~?>" for c in "~?>"]
    positions = "".join(position_of(PLANNED, Outcome(id_, None, {"main": 7})) for id_ in ids)
    assert {"-", "_"} <= {*positions}
