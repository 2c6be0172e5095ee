"""What is computed from an object is found again by that object only, not by one equal to it."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from mediator.base.identity_cache import IdentityCache

SIZE = 3


class Argument: ...


def counting(calls: list[tuple[Any, ...]]) -> IdentityCache[tuple[Any, ...]]:
    def compute(*args: Any) -> tuple[Any, ...]:
        calls.append(args)
        return args

    return IdentityCache(compute, SIZE)


def test_it_is_computed_once_for_the_same_objects() -> None:
    calls: list[tuple[Any, ...]] = []
    cache, one, other = counting(calls), ["a"], ["b"]
    assert cache(one, other) is cache(one, other)
    assert len(calls) == 1
    assert cache(other, one) == (other, one)


def test_equal_objects_are_told_apart() -> None:
    cache = counting([])
    assert [type(cache(value)[0]) for value in (1, True, 1.0)] == [int, bool, float]


def test_it_keeps_its_arguments() -> None:
    calls: list[tuple[Any, ...]] = []
    cache = counting(calls)
    # Each list would be at the place of the one before, if that were not kept.
    found = [cache([number])[0] for number in range(10 * SIZE)]
    assert found == [[number] for number in range(10 * SIZE)]


def test_it_lets_go_of_the_arguments_that_it_forgets() -> None:
    cache: IdentityCache[None] = IdentityCache(lambda _: None, SIZE)
    alive: WeakSet[Argument] = WeakSet()
    for _ in range(10 * SIZE):
        argument = Argument()
        alive.add(argument)
        cache(argument)
        assert len(alive) <= SIZE
