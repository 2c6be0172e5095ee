"""Synthetic people, some of whom come twice with a mistake: data for linkage without a download."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random
from typing import Final

__all__ = ["Person", "owners", "people"]

_GIVEN: Final = (
    "james mary john patricia robert jennifer michael linda william elizabeth david barbara "
    "richard susan joseph jessica thomas sarah charles karen christopher nancy daniel lisa "
    "matthew margaret anthony betty donald sandra mark ashley paul dorothy steven kimberly "
    "andrew emily kenneth donna george michelle joshua carol kevin amanda brian melissa edward "
    "deborah ronald stephanie timothy rebecca jason laura jeffrey helen ryan sharon jacob "
    "cynthia gary kathleen nicholas amy eric shirley stephen angela jonathan anna larry ruth "
    "justin brenda scott pamela brandon nicole frank katherine benjamin virginia gregory"
)
_SURNAMES: Final = (
    "smith johnson williams jones brown davis miller wilson moore taylor anderson thomas jackson "
    "white harris martin thompson garcia martinez robinson clark rodriguez lewis lee walker hall "
    "allen young hernandez king wright lopez hill scott green adams baker gonzalez nelson carter "
    "mitchell perez roberts turner phillips campbell parker evans edwards collins stewart "
    "sanchez morris rogers reed cook morgan bell murphy bailey rivera cooper richardson cox "
    "howard ward torres peterson gray ramirez watson brooks sanders price bennett wood barnes"
)
_SYLLABLES: Final = (
    "ka ro me lin ster ton ber ley hart wick ford dan mar sel vin bor gan tre pol hol wes bran "
    "ash fen lock den ham shaw cro field mont ril"
)
_RARE: Final = 0.4
"""The share of names that are not on a list of frequent ones."""
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Person:
    """A person to encode: names, and the day of birth as YYYYMMDD."""

    given: str
    surname: str
    born: str

    def values(self) -> tuple[str, str, str]:
        """Return the values to encode; of the day of birth, the year."""
        return self.given, self.surname, self.born[:4]


def people(count: int, random: Random) -> list[Person]:
    """Draw people whose names are as unevenly frequent as real ones (by the law of Zipf)."""
    given = _draw_names(_GIVEN, count, random, 2)
    surnames = _draw_names(_SURNAMES, count, random, 3)
    return [Person(g, s, _day_born(random)) for g, s in zip(given, surnames, strict=True)]


def owners(left: int, right: int, random: Random) -> tuple[list[Person], list[Person]]:
    """Draw two owners' people: each of the left is one of the right, with one mistake."""
    theirs = people(right, random)
    return [_with_mistake(person, random) for person in random.sample(theirs, left)], theirs


def _draw_names(frequent_names: str, count: int, random: Random, syllables: int) -> list[str]:
    frequent = frequent_names.split()
    weights = list(accumulate(1 / (rank + 1) for rank in range(len(frequent))))
    names = random.choices(frequent, cum_weights=weights, k=count)
    return [_rare(random, syllables) if random.random() < _RARE else name for name in names]


def _rare(random: Random, syllables: int) -> str:
    return "".join(random.choices(_SYLLABLES.split(), k=syllables))


def _day_born(random: Random) -> str:
    year, month, day = random.randint(1920, 2010), random.randint(1, 12), random.randint(1, 28)
    return f"{year}{month:02}{day:02}"


def _with_mistake(person: Person, random: Random) -> Person:
    if random.random() < 0.5:  # noqa: PLR2004 - as often in one name as in the other
        return replace(person, given=_mistype(person.given, random))
    return replace(person, surname=_mistype(person.surname, random))


def _mistype(name: str, random: Random) -> str:
    """Replace, omit, insert or swap letters, once."""
    at, letter = random.randrange(len(name)), random.choice(_LETTERS)
    match random.randrange(4):
        case 0:
            return name[:at] + letter + name[at + 1 :]
        case 1:
            return name[:at] + name[at + 1 :]
        case 2:
            return name[:at] + letter + name[at:]
        case _:
            return name[:at] + name[at : at + 2][::-1] + name[at + 2 :]
