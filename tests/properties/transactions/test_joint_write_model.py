"""Every interleaving of joint writes, and the need for each rule of the protocol."""

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
    canonical_twin,
    exchange,
    without_finished,
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
"""For each rule, one of these worlds has a counterexample."""


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_no_interleaving_breaks_a_guarantee(world: World) -> None:
    """No write is lost, applied twice, out of order or torn for ever; no torn read looks whole.

    A write reported as applied was applied; one reported as refused or aborted never is.
    """
    result = search(world)
    assert result.path == ()
    assert result.states > 1_000


@pytest.mark.parametrize("rule", Rule, ids=lambda rule: rule.name)
def test_each_rule_is_needed(rule: Rule) -> None:
    """Without the rule, some interleaving breaks a guarantee."""
    worlds = [replace(world, broken=rule) for world in SMALL]
    assert any(search(world).broken for world in worlds)


@pytest.mark.parametrize("blind", [frozenset(), frozenset({0, 1})], ids=["logged", "staged"])
def test_joint_writes_that_are_alike_can_be_exchanged(blind: frozenset[int]) -> None:
    """The search visits one of two such states; the same moves are possible in the other."""
    world, random = World(joint=(BOTH, BOTH), singles=BOTH, reads=True, blind=blind), Random(0)
    for _ in range(50):
        state = initial_state(world)
        for _ in range(40):
            successors = [(move.state, move.broken) for move in moves(world, state)]
            twin = exchange(state)
            after = {(move.state, move.broken) for move in moves(world, twin)}
            assert after == {(exchange(successor), broken) for successor, broken in successors}
            assert canonical_twin(state) == canonical_twin(twin)
            state = random.choice(successors)[0]


@pytest.mark.parametrize("blind", [frozenset(), frozenset({0})], ids=["logged", "staged"])
def test_other_moves_do_not_depend_on_a_reader(blind: frozenset[int]) -> None:
    """The search finds the writers' moves once for all states of a reader."""
    world, random = World(singles=BOTH, reads=True, crashes=2, blind=blind), Random(0)
    all_moves = moves_or_end(world)
    for _ in range(200):
        state = initial_state(world)
        for _ in range(40):
            possible = list(moves(world, state))
            assert list(all_moves(state)) == possible
            state = random.choice(possible).state
            if not any(moves(world, state)):
                break


@pytest.mark.parametrize("blind", [frozenset(), frozenset({0, 1})], ids=["logged", "staged"])
def test_finished_writes_do_not_affect_later_moves(blind: frozenset[int]) -> None:
    """The search forgets them: the same moves are possible then, and break the same guarantees."""
    world, random = World(joint=(BOTH, BOTH), singles=BOTH, blind=blind), Random(0)
    count = 0
    for _ in range(100):
        state = initial_state(world)
        for _ in range(60):
            possible, reduced = list(moves(world, state)), without_finished(state)
            if reduced != state:
                count += 1
                after, reduced_after = (
                    {(without_finished(move.state), move.broken) for move in state_moves}
                    for state_moves in (possible, moves(world, reduced))
                )
                no_move = (reduced, False)
                assert after - {no_move} == reduced_after - {no_move}
            state = random.choice(possible).state if possible else initial_state(world)
    assert count > 100
