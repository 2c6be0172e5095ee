"""Results are cached within bounds, by equality or by the identity of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import pytest

from mediator.base.bounded_cache import MAX_BYTES, BoundedCache, IdentityCache

SIZE = 3


class Argument: ...


@dataclass(frozen=True)
class Holder:
    """An argument whose fields count."""

    text: str


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
    # Without these references each list would have the address of the previous one.
    results = [cache([number])[0] for number in range(10 * SIZE)]
    assert results == [[number] for number in range(10 * SIZE)]


def test_forgotten_arguments_are_released() -> None:
    cache: IdentityCache[None] = IdentityCache(lambda _: None, SIZE)
    alive: WeakSet[Argument] = WeakSet()
    for _ in range(10 * SIZE):
        argument = Argument()
        alive.add(argument)
        cache(argument)
        assert len(alive) <= SIZE


def test_a_result_is_computed_once_for_equal_arguments() -> None:
    calls: list[Any] = []
    cache = BoundedCache(calls.append, SIZE)
    for _ in range(2):
        cache((1, "a"))
    assert calls == [(1, "a")]


IN_COLLECTIONS: list[Callable[[str], Any]] = [
    lambda text: [text],
    lambda text: ({"k": (text,)},),
    lambda text: {text: None},
    lambda text: {text},
]


@pytest.mark.parametrize("wrap", [str, Holder, lambda text: (Holder(text),), *IN_COLLECTIONS])
def test_large_arguments_are_cached_within_a_bound(wrap: Callable[[str], Any]) -> None:
    cache: IdentityCache[None] = IdentityCache(lambda _: None, 1_000, (Holder,))
    for number in range(30):
        cache(wrap(f"{number:02}" * (MAX_BYTES // 20)))
        assert 0 < len(cache) <= 10


def test_an_argument_beyond_the_limit_is_not_cached() -> None:
    calls: list[str] = []
    cache = BoundedCache(calls.append, SIZE)
    small, large = "a", "b" * MAX_BYTES
    for _ in range(2):
        cache(small)
        cache(large)
    assert calls == [small, large, large]
