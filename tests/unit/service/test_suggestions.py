"""Which known name is suggested for an unknown one, and the effort to find it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mediator.base import suggestions
from mediator.base.suggestions import did_you_mean, nearest

FIELDS = ("title", "body", "inc", "tags", "price", "hits", "author", "created_at", "category")
NAMES = st.text("abc_", max_size=12)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("pric", "price"),
        ("pricee", "price"),
        ("prise", "price"),
        ("pirce", "price"),
        ("Price", "price"),
        ("PRICES", "price"),
        ("rice", "price"),
        ("titel", "title"),
        ("bdoy", "body"),
        ("created", "created_at"),
        ("createdAt", "created_at"),
        ("created-at", "created_at"),
        ("categroy", "category"),
        ("nothing", None),
        ("b", None),
        ("", None),
        ("icn", "inc"),
        ("price", None),
    ],
)
def test_the_nearest_name_is_suggested(name: str, suggestion: str | None) -> None:
    assert nearest(name, FIELDS) == suggestion
    assert did_you_mean(name, FIELDS) == (f'; did you mean "{suggestion}"?' if suggestion else "")


def test_of_several_near_names_the_nearest_is_suggested_in_any_order() -> None:
    names = ["write_latency", "read_latencies", "read_latency"]
    for ordered_names in (names, names[::-1]):
        assert nearest("read_latencyy", ordered_names) == "read_latency"
    assert nearest("cat", ["car", "bat"]) == nearest("cat", ["bat", "car"]) == "bat"


def test_hidden_names_are_not_suggested_and_hide_no_other_name() -> None:
    assert nearest("note", ["notes", "noted_by"], lambda name: name != "notes") is None
    assert nearest("nots", ["notes", "not"], lambda name: name != "not") == "notes"
    assert did_you_mean("nots", ["notes"], lambda _: False) == ""


@pytest.mark.parametrize("name", [None, 5, ["price"], {"price": 1}, "price" * 20_000])
def test_no_candidate_is_read_for_an_invalid_name(name: object) -> None:
    candidates = iter(FIELDS)
    assert did_you_mean(name, candidates) == ""
    assert list(candidates) == list(FIELDS)


def test_the_number_of_compared_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    compared, read_numbers = [], []

    def candidates() -> Iterator[str]:
        for number in range(100_000):
            read_numbers.append(number)
            yield f"{'a' * 50}{number:06}"

    def differing(one: str, other: str) -> int:
        compared.append(other)
        return len(one)

    monkeypatch.setattr(suggestions, "differing_letters", differing)
    assert nearest("a" * 56, candidates()) is None
    assert 0 < len(compared) <= 64
    assert len(read_numbers) <= 501


@given(NAMES, st.lists(NAMES, max_size=5))
def test_a_suggestion_is_one_of_the_names_and_not_the_given_one(
    name: str, names: list[str]
) -> None:
    assert nearest(name, names) in {*names, None} - {name}


@given(NAMES.filter(lambda name: len(name) > 3), st.data())
def test_one_slip_is_always_found(name: str, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(name) - 1))
    slips = (
        name[:position] + name[position + 1 :],
        name[:position] + "z" + name[position:],
        name[:position] + "z" + name[position + 1 :],
    )
    for slip in slips:
        assert slip == name or nearest(slip, [name]) == name
