"""Synthetic people with errors, and their truth: any number, the same for a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import accumulate, product
from random import Random
from string import ascii_lowercase
from typing import Final, TypeAlias

__all__ = ["Person", "people"]

Person: TypeAlias = dict[str, str | None]
"""Fields with ``id`` and ``entity``; None: missing."""

_PREFIXES: Final = "ba ca do el fre gra hol is jo ka le mar no ol"
_MIDDLES: Final = ("", "be", "di", "fa", "li", "mo", "na", "ra", "ri", "sa", "to", "va", "we", "zi")
_ENDINGS: Final = "n ng rd s son ton man la ne rt ck ley ford wood"
_STREETS = ("road", "street", "lane", "way", "place", "avenue")
_BORN: Final = date(1930, 1, 1)
_DAYS: Final = 27_000
_FIRST_NAMES: Final = 600
_SURNAMES: Final = 2_500
_CITIES: Final = 300
_MISSING: Final = 0.08
_WRONG: Final = 0.12
_MOVED: Final = 0.1


@dataclass(frozen=True, slots=True)
class _Names:
    """Values with frequencies by Zipf's law."""

    values: tuple[str, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, count: int, random: Random) -> _Names:
        parts = list(product(_PREFIXES.split(), _MIDDLES, _ENDINGS.split()))
        values = tuple("".join(syllables) for syllables in random.sample(parts, count))
        return cls(values, tuple(accumulate(1 / (rank + 10) for rank in range(count))))

    def draw(self, random: Random) -> str:
        return random.choices(self.values, cum_weights=self.weights)[0]


class _Town:
    """The source of people and their values."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._first = _Names.of(_FIRST_NAMES, random)
        self._last = _Names.of(_SURNAMES, random)
        self._cities = _Names.of(_CITIES, random)

    def person(self) -> dict[str, str]:
        random = self._random
        return {
            "given_name": self._first.draw(random),
            "surname": self._last.draw(random),
            "date_of_birth": (_BORN + timedelta(random.randrange(_DAYS))).isoformat(),
            **self.address(),
            "phone": f"0{random.randrange(10**8):08}",
        }

    def address(self) -> Mapping[str, str]:
        random = self._random
        city = self._cities.draw(random)
        street = f"{random.randrange(1, 200)} {self._last.draw(random)} {random.choice(_STREETS)}"
        return {
            "street": street,
            "city": city,
            "postcode": f"{sum(map(ord, city)) * 37 % 10_000:04}",
        }

    def copy(self, person: Mapping[str, str]) -> dict[str, str | None]:
        """Return a person's values as another source has them, with errors."""
        random = self._random
        new_address = self.address() if random.random() < _MOVED else {}
        return {name: self._with_errors(value) for name, value in {**person, **new_address}.items()}

    def _with_errors(self, value: str) -> str | None:
        chance = self._random.random()
        if chance < _MISSING:
            return None
        return _mistype(value, self._random) if chance < _MISSING + _WRONG else value


def _mistype(value: str, random: Random) -> str:
    at = random.randrange(len(value))
    letters = "0123456789" if value[at].isdigit() else ascii_lowercase
    edits: tuple[Callable[[str], str], ...] = (
        lambda _: value[:at] + value[at + 1 :],
        lambda letter: value[:at] + letter + value[at:],
        lambda letter: value[:at] + letter + value[at + 1 :],
        lambda _: value[:at] + value[at + 1 : at + 2] + value[at] + value[at + 2 :],
    )
    return random.choice(edits)(random.choice(letters))


def people(entities: int, max_copies: int, seed: int) -> Iterator[Person]:
    """Generate people, each with up to `max_copies` further records, with separate errors."""
    random = Random(seed)
    town = _Town(random)
    for entity in range(entities):
        person = town.person()
        yield {"id": f"{entity}-0", "entity": str(entity), **person}
        for copy in range(random.randint(0, max_copies)):
            yield {"id": f"{entity}-{copy + 1}", "entity": str(entity), **town.copy(person)}
