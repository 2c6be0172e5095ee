"""Results of a computation are cached by the identity of its arguments, not by equality."""

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


def test_a_result_is_computed_once_for_the_same_objects() -> None:
    calls: list[tuple[Any, ...]] = []
    cache, one, other = counting(calls), ["a"], ["b"]
    assert cache(one, other) is cache(one, other)
    assert len(calls) == 1
    assert cache(other, one) == (other, one)


def test_equal_objects_are_different_keys() -> None:
    cache = counting([])
    assert [type(cache(value)[0]) for value in (1, True, 1.0)] == [int, bool, float]


def test_the_cache_keeps_references_to_its_arguments() -> None:
    calls: list[tuple[Any, ...]] = []
    cache = counting(calls)
    # Each list would be at the address of the one before, if that were not kept.
    found = [cache([number])[0] for number in range(10 * SIZE)]
    assert found == [[number] for number in range(10 * SIZE)]


def test_forgotten_arguments_are_released() -> None:
    cache: IdentityCache[None] = IdentityCache(lambda _: None, SIZE)
    alive: WeakSet[Argument] = WeakSet()
    for _ in range(10 * SIZE):
        argument = Argument()
        alive.add(argument)
        cache(argument)
        assert len(alive) <= SIZE
