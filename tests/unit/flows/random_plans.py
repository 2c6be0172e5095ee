"""Random plans of message flows, and messages for them."""

from __future__ import annotations

from random import Random
from typing import Any, Final

__all__ = ["random_messages", "random_plan"]

_TARGETS: Final = ("x", "y", "credits", "total", "note")
_TOTALS: Final = (1, 2, 3, 1.0, 2.5, -4, True, None, "a", [1])
_RANGES: Final = ({"ge": 2}, {"lt": 1.5}, {"ge": 1, "lt": 3}, {"ge": -10, "lt": 0})
_MAX_DEPTH: Final = 2
"""Nested switches."""


def random_messages(chance: Random) -> list[dict[str, Any]]:
    return [
        {
            "name": chance.choice(("A", "B", "unknown")),
            "total": chance.choice(_TOTALS),
            "note": chance.randrange(3),
        }
        for _ in range(chance.randrange(1, 20))
    ]


def random_plan(chance: Random) -> list[dict[str, Any]]:
    attributes = {"name": "string", "total": "json", "note": "integer"}
    operators = _Operators(chance).choose(set(attributes), _MAX_DEPTH, minimum=1)
    return [{"op": "receive", "attributes": attributes}, *operators]


class _Operators:
    """Chooses operators; an argument `names` becomes the names of a message after them."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._remaining = 40

    def choose(self, names: set[str], depth: int, minimum: int = 0) -> list[dict[str, Any]]:
        number = min(self._chance.randrange(minimum, 7), self._remaining)
        self._remaining -= number
        return [self._one(names, depth) for _ in range(number)]

    def _one(self, names: set[str], depth: int) -> dict[str, Any]:
        kinds = ["assign", "query", "query", "translate"]
        kinds += ["switch"] * 3 * (depth > 0) + ["join"] * ("credits" in names)
        reference = self._reference(names)
        match self._chance.choice(kinds):
            case "assign":
                value = self._chance.choice([reference, reference, [reference, 1], 2])
                return {"op": "assign", "to": self._target(names), "value": value}
            case "query":
                names.add("credits")
                filter_ = {"eq": ["customer", reference]}
                query = {"class": "credits", "filter": filter_}
                return {"op": "invoke", "query": query, "to": "credits"}
            case "join":
                on, to = {"customer": reference}, self._target(names)
                return {"op": "join", "with": "credits", "on": on, "to": to}
            case "translate":
                return self._translate(names)
            case _:
                return self._switch(names, depth)

    def _translate(self, names: set[str]) -> dict[str, Any]:
        copied = self._chance.sample(sorted(names), self._chance.randint(0, len(names)))
        renamed = {self._chance.choice(_TARGETS): self._reference(names)}
        value = {**{name: {"$": f"/{name}"} for name in copied}, **renamed}
        names.clear()
        names.update(value)
        return {"op": "translate", "value": value}

    def _switch(self, names: set[str], depth: int) -> dict[str, Any]:
        on, branches = self._reference(names), [set(names) for _ in range(3)]
        first, second, last = (self.choose(branch, depth - 1) for branch in branches)
        cases = [
            {**self._condition(), "operators": first},
            {**self._condition(), "operators": second},
        ]
        names.clear()
        names.update(set.intersection(*branches))
        return {"op": "switch", "on": on, "cases": cases, "default": last}

    def _condition(self) -> dict[str, Any]:
        values = self._chance.sample([*_TOTALS, "A", "B"], self._chance.randint(1, 3))
        return self._chance.choice([{"equals": values}, *_RANGES])

    def _reference(self, names: set[str]) -> Any:
        """Refer to a name, or into it; a constant where a message has no names."""
        if not names:
            return "A"
        name = self._chance.choice(sorted(names))
        return {"$": f"/{name}{self._chance.choice(['', '', '', '/0', '/amount'])}"}

    def _target(self, names: set[str]) -> str:
        name = self._chance.choice(_TARGETS)
        names.add(name)
        return name
