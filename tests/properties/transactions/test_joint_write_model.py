"""Every interleaving of joint writes, and what each rule of the protocol is there for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.properties.transactions.joint_write_model import search
from tests.properties.transactions.joint_write_states import Rule, World

BOTH, ANCHOR = (0, 1), (0,)

WORLDS = {
    "a client writes both records, and a reader joins them": World(singles=BOTH, reads=1),
    "records that were never written together": World(singles=BOTH, reads=1, equal=False),
    "two coordinators, both stop": World(joint=(BOTH, BOTH), crashes=2),
    "two coordinators and a client": World(joint=(BOTH, BOTH), singles=(0, 1), crashes=0),
    "two coordinators and a reader": World(joint=(BOTH, BOTH), reads=1, crashes=0),
    "a blind write, which a client and a reader meet": World(
        singles=BOTH, reads=1, blind=frozenset({0})
    ),
    "two blind writes, both coordinators stop": World(
        joint=(BOTH, BOTH), crashes=2, blind=frozenset({0, 1})
    ),
    "a blind write and another": World(joint=(BOTH, BOTH), crashes=1, blind=frozenset({0})),
    "a write that touches the anchor only": World(joint=(BOTH, ANCHOR), reads=1, crashes=0),
}

SMALL = (
    World(blind=frozenset({0})),
    World(singles=BOTH, reads=1),
    World(reads=1, equal=False),
    World(joint=(BOTH, BOTH)),
    World(joint=(BOTH, ANCHOR), reads=1, crashes=0),
)
"""Some of these have a counterexample for each rule."""


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_no_interleaving_breaks_a_guarantee(world: World) -> None:
    """Nothing is lost, applied twice, out of order, torn for ever, or answered torn as whole."""
    found = search(world)
    assert found.path == ()
    assert found.states > 1_000


@pytest.mark.parametrize("rule", Rule, ids=lambda rule: rule.name)
def test_each_rule_is_needed(rule: Rule) -> None:
    """Without any one of them, some interleaving breaks a guarantee."""
    worlds = [replace(world, broken=rule) for world in SMALL]
    assert any(search(world).broken for world in worlds)
