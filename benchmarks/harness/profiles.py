"""Profiles and their walls: the data and the eleven queries by which object mappers were examined.

After Störl, Hauf, Klettke, Scherzinger, "Schemaless NoSQL Data Stores - Object-NoSQL Mappers to the
Rescue?" (BTW 2015). Each profile has a login, and five entries on its wall with two comments each
on average. Twenty-five profiles share one last name, whatever the size of the data, so that query 4
always has as many answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeAlias

__all__ = ["CLASSES", "QUERIES", "ProfileQuery", "Profiles", "generate", "placed"]

Json: TypeAlias = dict[str, Any]

RELATIVES: Final = 25
"""Profiles that share the last name of query 4."""

RELATED: Final = "Klose"

CLASSES: Final[Mapping[str, Mapping[str, Json]]] = {
    "profiles": {
        "profileID": {"type": "integer", "index": True},
        "firstname": {"type": "string"},
        "lastname": {"type": "string", "index": True},
        "yearOfBirth": {"type": "integer", "index": True},
        "country": {"type": "string"},
        "login": {"type": "reference", "to": "logins"},
    },
    "logins": {"mail": {"type": "string"}, "count": {"type": "integer"}},
    "entries": {
        "entry": {"type": "string"},
        "likeCounter": {"type": "integer", "index": True},
        "author": {"type": "reference", "to": "profiles"},
    },
    "comments": {
        "comment": {"type": "string"},
        "on": {"type": "reference", "to": "entries"},
        "author": {"type": "reference", "to": "profiles"},
    },
}
"""The fields of each class, in the form of a schema."""

_FIRST: Final = (
    *("Miroslav", "Zoë", "Åsa", "José", "Ngọc", "Anna", "Bob", "Cid", "Dee", "Eve", "Łukasz"),
    *("miroslav", "MIROSLAV", "Jürgen", "Ötzi", "Renée", "Siân", "Tor", "Uta", "Vera", "Wim"),
)
_LAST: Final = ("Kloser", "klose", "Kl%se", "Kl_se", "Ballack", "Müller", "Özil", "Lahm", "Sané")
_COUNTRIES: Final = ("DE", "AT", "CH", "PL", "FR", "IT", "ES", "NL", "SE", "NO")
_HOSTS: Final = ("mail.example", "post.example", "mail.example.org", "MAIL.example")
_WORDS: Final = (
    *("goal", "Goal", "own goal!", "match", "100%", "under_score", "back\\slash", "tor", "fußball"),
    *("the", "a", "we", "won", "lost", "again", "semi-final", "⚽", "?", "ΠΑΟΚ", "g_al", "go%l"),
)


@dataclass(frozen=True, slots=True)
class Profiles:
    """Objects by class and id, in the form of JSON, without their ids."""

    objects: Mapping[str, Mapping[str, Json]]

    def items(self, class_name: str) -> list[Json]:
        """Return the objects of a class as a query answers them, in the order of their ids."""
        objects = self.objects[class_name]
        return [{"id": id_, **objects[id_]} for id_ in sorted(objects, key=str.encode)]

    def item(self, class_name: str, id_: str) -> Json | None:
        values = self.objects[class_name].get(id_)
        return None if values is None else {"id": id_, **values}


def generate(count: int, *, walls: int) -> Profiles:
    """Generate data, the same for the same arguments.

    Args:
        count: Profiles; at least `RELATIVES`.
        walls: Profiles with entries on their walls, from the first on.
    """
    draw = Random(4711)
    objects: dict[str, dict[str, Json]] = {name: {} for name in CLASSES}
    relatives = set(draw.sample(range(count), RELATIVES))
    for number in range(count):
        objects["profiles"][f"p{number}"] = _profile(draw, number, related=number in relatives)
        host = draw.choice(_HOSTS)
        login = {"mail": f"{draw.choice(_FIRST)}{number}@{host}", "count": draw.randrange(1000)}
        objects["logins"][f"l{number}"] = login
    for number in range(walls):
        _add_wall(draw, objects, number, count)
    return Profiles(objects)


def _profile(draw: Random, number: int, *, related: bool) -> Json:
    last = RELATED if related else draw.choice(_LAST)
    return {
        "profileID": number,
        "firstname": draw.choice(_FIRST),
        "lastname": last if related else f"{last}{draw.randrange(200)}",
        "yearOfBirth": draw.randrange(1940, 2005),
        "country": draw.choice(_COUNTRIES),
        "login": f"l{number}",
    }


def _add_wall(draw: Random, objects: dict[str, dict[str, Json]], owner: int, count: int) -> None:
    for index in range(5):
        entry = f"e{owner}-{index}"
        likes = min(999, int(draw.expovariate(1 / 60)))
        values = {"entry": _text(draw), "likeCounter": likes, "author": f"p{owner}"}
        objects["entries"][entry] = values
        for number in range(draw.randrange(5)):
            objects["comments"][f"c{owner}-{index}-{number}"] = {
                "comment": _text(draw),
                "on": entry,
                "author": f"p{draw.randrange(count)}",
            }


def _text(draw: Random) -> str:
    return " ".join(draw.choices(_WORDS, k=draw.randrange(1, 6)))


def placed(
    classes: Mapping[str, Mapping[str, Json]],
    systems: tuple[str, ...],
    field_on: Callable[[str], Json],
) -> dict[str, Json]:
    """Return the classes of a schema whose fields are distributed over systems in turn.

    Args:
        classes: Fields by class, as in `CLASSES`.
        systems: The first one gets the main group of every class.
        field_on: Returns the members that place a field on a system.
    """
    return {
        name: {"fields": dict(_distribute(fields, systems, field_on))}
        for name, fields in classes.items()
    }


def _distribute(
    fields: Mapping[str, Json], systems: tuple[str, ...], field_on: Callable[[str], Json]
) -> Iterator[tuple[str, Json]]:
    for number, (name, field) in enumerate(fields.items()):
        system = systems[number % len(systems)]
        group = {} if system == systems[0] else {"group": system}
        yield name, {**field_on(system), **field, **group}


@dataclass(frozen=True, slots=True)
class ProfileQuery:
    """One of the eleven queries.

    Attributes:
        number: Its number in the paper.
        body: The query, without order and limit.
        holds: The same in plain Python, on an object with its joined objects.
    """

    number: int
    class_name: str
    body: Json
    holds: Callable[[Json], bool]

    def answers(self, data: Profiles) -> list[Json]:
        """Return the expected answer, in the order of ids."""
        items = data.items(self.class_name)
        if join := self.body.get("join"):
            reference = join["reference"]
            class_name = CLASSES[self.class_name][reference]["to"]
            for item in items:
                item[join["as"]] = data.item(class_name, item[reference])
        return [item for item in items if self.holds(item)]


_KEY: Final = 17

_ANNA: Final = {"eq": ["firstname", "Anna"]}
_MIROSLAV: Final = {"eq": ["firstname", "Miroslav"]}
_KLOSE: Final = {"eq": ["lastname", RELATED]}


def _conjunction(*conditions: Json) -> Json:
    return {"filter": {"and": [*conditions]}}


QUERIES: Final = (
    ProfileQuery(0, "profiles", {"filter": {"eq": ["id", f"p{_KEY}"]}}, lambda o: o["id"] == "p17"),
    ProfileQuery(
        1, "profiles", {"filter": {"eq": ["profileID", _KEY]}}, lambda o: o["profileID"] == _KEY
    ),
    ProfileQuery(
        2,
        "profiles",
        _conjunction(_ANNA, _KLOSE),
        lambda o: o["firstname"] == "Anna" and o["lastname"] == RELATED,
    ),
    ProfileQuery(
        3,
        "profiles",
        {"filter": {"eq": ["yearOfBirth", 1978]}},
        lambda o: o["yearOfBirth"] == 1978,  # noqa: PLR2004 - the year of the query
    ),
    ProfileQuery(4, "profiles", {"filter": _KLOSE}, lambda o: o["lastname"] == RELATED),
    ProfileQuery(
        5,
        "profiles",
        _conjunction({"ge": ["yearOfBirth", 1970]}, {"le": ["yearOfBirth", 1972]}),
        lambda o: 1970 <= o["yearOfBirth"] <= 1972,  # noqa: PLR2004 - the years of the query
    ),
    ProfileQuery(
        6,
        "profiles",
        _conjunction(_KLOSE, {"ne": ["firstname", "Miroslav"]}, {"ne": ["firstname", "Anna"]}),
        lambda o: o["lastname"] == RELATED and o["firstname"] not in ("Miroslav", "Anna"),
    ),
    ProfileQuery(
        7,
        "profiles",
        _conjunction(_KLOSE, {"or": [_MIROSLAV, _ANNA]}),
        lambda o: o["lastname"] == RELATED and o["firstname"] in ("Miroslav", "Anna"),
    ),
    ProfileQuery(
        8,
        "entries",
        _conjunction({"ge": ["likeCounter", 100]}, {"like": ["entry", "%goal%"]}),
        lambda o: o["likeCounter"] >= 100 and "goal" in o["entry"],  # noqa: PLR2004 - as queried
    ),
    ProfileQuery(
        9,
        "profiles",
        _conjunction(
            {"like": ["account.mail", "%@mail.example"]}, {"in": ["country", ["DE", "AT"]]}
        )
        | {"join": {"as": "account", "reference": "login"}},
        lambda o: o["account"]["mail"].endswith("@mail.example") and o["country"] in ("DE", "AT"),
    ),
    ProfileQuery(
        10,
        "comments",
        _conjunction({"like": ["comment", "%goal%"]}, {"like": ["wall.entry", "%100\\%%"]})
        | {"join": {"as": "wall", "reference": "on"}},
        lambda o: "goal" in o["comment"] and "100%" in o["wall"]["entry"],
    ),
)
"""The queries of the paper, with constants that have answers in the data of any size."""
