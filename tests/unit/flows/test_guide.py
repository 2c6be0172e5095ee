"""The guide shows the flow that the tests execute."""

from __future__ import annotations

import re
from pathlib import Path

import orjson

from tests.process.flows.shop import orders
from tests.unit.flows.plans import ORDERS, flow

GUIDE = Path(__file__).parents[3] / "docs" / "message-flows.md"


def test_the_example_of_the_guide_is_the_flow_that_is_tested() -> None:
    blocks = re.findall(r"^```http\n.*?\n\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    declaration, batch = map(orjson.loads, blocks)
    assert declaration["plan"] == ORDERS
    assert flow(declaration["plan"], ordered=declaration["ordered"]).ordered
    assert batch["messages"] == orders()
