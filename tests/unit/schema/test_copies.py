"""The three forms of a field copy, and those that a schema allows."""

from __future__ import annotations

from typing import Any, Final

import pytest

from mediator.base.errors import Invalid
from mediator.schema.copies import Copy, FieldCopy, field_copy, parse_copy
from mediator.schema.parse import parse_schema

_SCHEMA: Final[dict[str, Any]] = {
    "classes": {
        "players": {
            "fields": {
                "name": {"type": "string", "index": True},
                "account": {"type": "string"},
                "score": {"type": "integer"},
                "leader": {"type": "reference", "to": "players"},
                "seen": {"type": "timestamp", "updated": True},
                "tags": {"type": "list", "items": "string"},
            }
        },
        "missions": {
            "fields": {
                "player": {"type": "reference", "to": "players"},
                "player_name": {"type": "string"},
                "account": {"type": "string"},
                "score": {"type": "decimal"},
                "tags": {"type": "list", "items": "string"},
            }
        },
    }
}


def copy_of(text: str) -> FieldCopy:
    return field_copy(parse_copy(text), parse_schema("game", _SCHEMA))


def test_a_copy_has_three_forms() -> None:
    assert parse_copy("players.score:points") == Copy("players", None, None, "score", "points")
    by_reference = Copy("missions", "player", None, "account", "account")
    assert parse_copy("missions.player.account:account") == by_reference
    by_value = Copy("missions", "player_name", ("players", "name"), "account", "account")
    assert parse_copy("missions.player_name=players.name.account:account") == by_value


@pytest.mark.parametrize(
    "text", ["", "players", "players.score", "players.score:", "a.b.c.d:e", "a.b=c.d:e", "a.b:c\n"]
)
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_copy(text)
    [location] = refused.value.locations
    assert location.pointer == "copy"
    assert "class.source:target" in location.detail


@pytest.mark.parametrize(
    ("text", "source_class", "equal", "own_fields"),
    [
        ("players.name:account", "players", None, ("account", "name")),
        ("missions.player.account:account", "players", None, ("account", "player")),
        ("players.leader.score:score", "players", None, ("leader", "score")),
        ("missions.account=players.name.score:score", "players", "name", ("account", "score")),
        ("missions.account=players.id.score:score", "players", None, ("account", "score")),
    ],
)  # fmt: skip
def test_fields_that_a_copy_reads(
    text: str, source_class: str, equal: str | None, own_fields: tuple[str, ...]
) -> None:
    copy = copy_of(text)
    assert (copy.source_class, copy.equal, copy.own_fields) == (source_class, equal, own_fields)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("player.name:account", 'no class player; did you mean "players"?'),
        ("players.names:account", 'no field players.names; did you mean "name"?'),
        ("players.name:accounts", "no field players.accounts"),
        ("players.name:name", "copied to itself"),
        ("players.name:seen", "set by the service"),
        ("players.tags:score", "no conversion from list of string (players.tags) to integer"),
        ("missions.account.account:account", "missions.account is no reference"),
        ("missions.tags=players.tags.account:account", "not of one scalar type"),
        ("missions.score=players.score.account:account", "not of one scalar type"),
        ("missions.score=players.id.account:account", "missions.score holds no ids"),
        ("missions.account=players.account.name:account", "players.account has no index"),
        ("missions.player=teams.name.account:account", "no class teams"),
    ],
)
def test_copies_that_the_schema_does_not_allow(text: str, reason: str) -> None:
    with pytest.raises(Invalid) as refused:
        copy_of(text)
    [location] = refused.value.locations
    assert reason in location.detail
