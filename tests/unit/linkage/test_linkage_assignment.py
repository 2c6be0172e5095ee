"""One-to-one links: batches give the same links as all pairs together."""

from __future__ import annotations

import sys
from random import Random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.linkage.private.stages import BYTES_PER_END, first_come

Link = tuple[str, str, str, str, float]
NAMES = ("left_party", "left", "right_party", "right", "similarity")


def ends(link: Link) -> set[tuple[str, str, str]]:
    """Return each record of a link with the other owner: it can have no further link there."""
    return {link[:3], (link[2], link[3], link[0])}


def best_of_both(links: list[Link]) -> list[Link]:
    """Repeatedly take the links that both ends rank first, and drop their competitors."""
    rank, remaining, chosen = {link: n for n, link in enumerate(links)}, set(links), set()
    while remaining:
        best = {end: min((x for x in remaining if end in ends(x)), key=rank.__getitem__)
                for link in remaining for end in ends(link)}  # fmt: skip
        mutual = {link for link in remaining if all(best[end] == link for end in ends(link))}
        used_ends = {end for link in mutual for end in ends(link)}
        chosen |= mutual
        remaining = {link for link in remaining if not ends(link) & used_ends}
    return sorted(chosen, key=rank.__getitem__)


@st.composite
def graphs(draw: st.DrawFn) -> list[Link]:
    """Links of two to four owners with shared record ids and many ties."""
    owners = ["a", "b", "c", "d"][: draw(st.integers(2, 4))]
    pairs = [(x, y) for n, x in enumerate(owners) for y in owners[n + 1 :]]
    ids = st.sampled_from("01234")
    link_ends = st.tuples(st.sampled_from(pairs), ids, ids)
    drawn_links = draw(st.lists(link_ends, unique=True, max_size=40))
    similarities = st.sampled_from([1.0, 0.9, 0.85, 0.8])
    links = [(a, left, b, right, draw(similarities)) for (a, b), left, right in drawn_links]
    return sorted(links, key=lambda link: (-link[4], *link[:4]))


def batch(links: list[Link]) -> pa.RecordBatch:
    types = [pa.string()] * 4 + [pa.float64()]
    columns = [[link[n] for link in links] for n in range(5)]
    arrays = [pa.array(values, type_) for values, type_ in zip(columns, types, strict=True)]
    return pa.record_batch(arrays, names=list(NAMES))


def in_batches(links: list[Link], sizes: list[int]) -> list[Link]:
    batches, first = [], 0
    for size in [*sizes, len(links)]:
        batches.append(batch(links[first : first + size]))
        first += size
    return [
        tuple(row[name] for name in NAMES) for b in first_come(batches) for row in b.to_pylist()
    ]


@given(graphs(), st.lists(st.integers(0, 7), max_size=8))
def test_assignment_chooses_links_that_both_ends_rank_first(
    links: list[Link], sizes: list[int]
) -> None:
    assert in_batches(links, sizes) == best_of_both(links)


def test_the_forecast_includes_its_memory_of_each_record() -> None:
    """Memory grows with the records, not the pairs: an id and a set slot for each."""
    ids = {f"{Random(n).getrandbits(160):040x}" for n in range(10_000)}
    max_bytes = (sys.getsizeof(ids) + sum(sys.getsizeof(id_) for id_ in ids)) / len(ids)
    assert max_bytes <= BYTES_PER_END
