"""Every interleaving of joint writes, and what each rule of the protocol is there for."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.properties.transactions.joint_write_model import (
    initial_state,
    moves,
    moves_or_end,
    search,
)
from tests.properties.transactions.joint_write_states import (
    Rule,
    World,
    exchanged,
    one_of_twins,
    without_what_is_over,
)

BOTH, ANCHOR = (0, 1), (0,)

WORLDS = {
    "a client writes both records, and a reader joins them": World(singles=BOTH, reads=True),
    "records that were never written together": World(singles=BOTH, reads=True, equal=False),
    "two coordinators, both stop": World(joint=(BOTH, BOTH), crashes=2),
    "two coordinators and a client": World(joint=(BOTH, BOTH), singles=(0, 1), crashes=0),
    "two coordinators and a reader": World(joint=(BOTH, BOTH), reads=True, crashes=0),
    "a blind write, which a client and a reader meet": World(
        singles=BOTH, reads=True, blind=frozenset({0})
    ),
    "two blind writes, both coordinators stop": World(
        joint=(BOTH, BOTH), crashes=2, blind=frozenset({0, 1})
    ),
    "a blind write and another": World(joint=(BOTH, BOTH), crashes=1, blind=frozenset({0})),
    "a write that touches the anchor only": World(joint=(BOTH, ANCHOR), reads=True, crashes=0),
}

SMALL = (
    World(blind=frozenset({0})),
    World(singles=BOTH, reads=True),
    World(reads=True, equal=False),
    World(joint=(BOTH, BOTH)),
    World(joint=(BOTH, ANCHOR), reads=True, crashes=0),
)
"""Some of these have a counterexample for each rule."""


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_no_interleaving_breaks_a_guarantee(world: World) -> None:
    """Nothing is lost, applied twice, out of order, torn for ever, or answered torn as whole.

    What was reported as applied has been; what was reported as refused, or aborted, never is.
    """
    found = search(world)
    assert found.path == ()
    assert found.states > 1_000


@pytest.mark.parametrize("rule", Rule, ids=lambda rule: rule.name)
def test_each_rule_is_needed(rule: Rule) -> None:
    """Without any one of them, some interleaving breaks a guarantee."""
    worlds = [replace(world, broken=rule) for world in SMALL]
    assert any(search(world).broken for world in worlds)


@pytest.mark.parametrize("blind", [frozenset(), frozenset({0, 1})], ids=["logged", "staged"])
def test_joint_writes_that_are_alike_can_be_exchanged(blind: frozenset[int]) -> None:
    """The search visits one of two such states: whatever happens in one happens in the other."""
    world, random = World(joint=(BOTH, BOTH), singles=BOTH, reads=True, blind=blind), Random(0)
    for _ in range(50):
        state = initial_state(world)
        for _ in range(40):
            possible = [(move.state, move.broken) for move in moves(world, state)]
            twin = exchanged(state)
            after = {(move.state, move.broken) for move in moves(world, twin)}
            assert after == {(exchanged(each), broken) for each, broken in possible}
            assert one_of_twins(state) == one_of_twins(twin)
            state = random.choice(possible)[0]


@pytest.mark.parametrize("blind", [frozenset(), frozenset({0})], ids=["logged", "staged"])
def test_nobody_sees_a_reader(blind: frozenset[int]) -> None:
    """The search finds the moves of others once for all that a reader may have read."""
    world, random = World(singles=BOTH, reads=True, crashes=2, blind=blind), Random(0)
    found = moves_or_end(world)
    for _ in range(200):
        state = initial_state(world)
        for _ in range(40):
            possible = list(moves(world, state))
            assert list(found(state)) == possible
            state = random.choice(possible).state
            if not any(moves(world, state)):
                break


@pytest.mark.parametrize("blind", [frozenset(), frozenset({0, 1})], ids=["logged", "staged"])
def test_what_is_over_is_of_no_interest(blind: frozenset[int]) -> None:
    """The search forgets it: from there the same can happen, and breaks the same guarantees."""
    world, random = World(joint=(BOTH, BOTH), singles=BOTH, blind=blind), Random(0)
    forgotten = 0
    for _ in range(100):
        state = initial_state(world)
        for _ in range(60):
            possible, forgetful = list(moves(world, state)), without_what_is_over(state)
            if forgetful != state:
                forgotten += 1
                after, same = (
                    {(without_what_is_over(move.state), move.broken) for move in each}
                    for each in (possible, moves(world, forgetful))
                )
                nothing = (forgetful, False)
                assert after - {nothing} == same - {nothing}
            state = random.choice(possible).state if possible else initial_state(world)
    assert forgotten > 100
