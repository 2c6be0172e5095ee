"""One-to-one links: the most similar pair first, then the most similar of the others, and so on.

Greedy, and stable in the sense of Gale and Shapley: no two records that were not linked are both
more similar to each other than to what they were linked with. Of equally similar pairs the one of
lower ids comes first, so the result is the same every time. It is not the assignment with the
greatest sum, which would part good pairs to make room for mediocre ones.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

__all__ = ["assigned"]


def assigned(links: DataFrame) -> DataFrame:
    """Leave each record one partner of each other owner at most.

    Args:
        links: Links in the order of `linked`.
    """
    table = links.toArrow()
    taken: set[tuple[str, str, str]] = set()
    kept = []
    columns = [table[name].to_pylist() for name in ("left_party", "left", "right_party", "right")]
    for left_party, left, right_party, right in zip(*columns, strict=True):
        ends = (left_party, left, right_party), (right_party, right, left_party)
        kept.append(taken.isdisjoint(ends))
        if kept[-1]:
            taken.update(ends)
    return links.sparkSession.createDataFrame(table.filter(kept))
