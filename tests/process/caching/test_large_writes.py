"""Writes of more cache groups than the sketch takes in one call."""

from __future__ import annotations

from mediator.model.operations import Outcome, Put
from mediator.schema.types import Values
from sketch.protocol.bounds import KEYS_AT_ONCE
from tests.process.caching.cached_paper import Paper
from tests.process.service import unique

GROUPS = 6
OBJECTS = 1_000
"""The limit of a batch."""


async def test_a_batch_of_more_groups_than_the_sketch_takes_at_once(paper: Paper) -> None:
    assert GROUPS * OBJECTS > KEYS_AT_ONCE
    fields = {f"f{n}": {"type": "integer", "group": f"g{n}"} for n in range(GROUPS)}
    database = await paper.running.put_schema({"wide": {"fields": fields}})
    values: Values = dict.fromkeys(fields, 1)
    puts = [Put(database, "wide", f"o{n}", unique(), values=values) for n in range(OBJECTS)]
    outcomes = await paper.running.mediator.data.batch(puts)
    assert {type(outcome) for outcome in outcomes} == {Outcome}
