"""One-to-one links: the most similar pair first, then the most similar of the others, and so on.

Greedy, and stable in the sense of Gale and Shapley: no two records that were not linked are both
more similar to each other than to what they were linked with. Of equally similar pairs the one of
lower ids comes first, so the result is the same every time. It is not the assignment with the
greatest sum, which would part good pairs to make room for mediocre ones.

Who is linked depends on all pairs before, so one task goes through them in order. Spark sorts them,
on the disk if they are many; the task holds one batch, and each end that is taken: of every record
at most one for each other owner, however many pairs there are. That is in the forecast of memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from spark_jobs.linkage.private.links import in_order

__all__ = ["assigned", "first_come"]


def assigned(links: DataFrame) -> DataFrame:
    """Leave each record one partner of each other owner at most.

    Args:
        links: Links as `linked` gives them.

    Returns:
        Those that are left, in the same order.
    """
    return in_order(links.repartition(1)).mapInArrow(first_come, links.schema)


def first_come(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Keep the links none of whose ends an earlier link took.

    Args:
        batches: Links, the better ones first.
    """
    taken: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for batch in batches:
        names = ("left_party", "left", "right_party", "right")
        free = []
        for one, left, other, right in zip(*(batch[n].to_pylist() for n in names), strict=True):
            lefts, rights = taken[one, other], taken[other, one]
            free.append(left not in lefts and right not in rights)
            if free[-1]:
                lefts.add(left)
                rights.add(right)
        yield batch.filter(pa.array(free, pa.bool_()))
