"""With any relocations and kills, results are those of a batch join of the logs (E3)."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.properties.relocation.scenario import Scenario


@pytest.mark.parametrize("relations", ["AB", "ABC", "ABCD"])
@pytest.mark.parametrize("faults", [False, True], ids=["skewed", "faulty"])
def test_results_are_those_of_a_batch_join(relations: str, faults: bool) -> None:
    ended: Counter[str] = Counter()
    results = 0
    for seed in range(15):
        scenario = Scenario(seed, relations, faults=faults, with_pair=seed % 2 == 0)
        scenario.run()
        scenario.check()
        ended += scenario.ended
        results += scenario.found().total()
    # Else the law would hold trivially.
    assert ended["ptlb done"] + ended["mslb done"] >= 10
    assert results > 200
    if faults:
        assert ended["ptlb cancelled"] + ended["mslb cancelled"] >= 1
