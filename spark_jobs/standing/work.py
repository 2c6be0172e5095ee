"""What the tasks of a batch have to know: hops, routes, what is stored, and where files go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mediator.standing.probe_orders import StoreLayout
from spark_jobs.standing.commits import Epoch, Segment
from spark_jobs.standing.hops import Hops, Route, routes_of
from spark_jobs.standing.segments import StoredRows, read_segment

__all__ = ["Work"]


@dataclass(frozen=True)
class Work:
    """The work of a batch.

    Attributes:
        root: The directory of the state, which all machines can reach.
        staging: Where results are written until the batch is committed.
        name: What the files of this execution of the batch are named by.
        epochs: What is stored; the last one takes what arrives.
        parallelism: Partition groups.
        watermark_s: Tuples from before are late.
    """

    root: Path
    staging: Path
    name: str
    hops: Hops
    epochs: tuple[Epoch, ...]
    parallelism: int
    watermark_s: float

    @cached_property
    def routes(self) -> Sequence[tuple[Route, ...]]:
        """The routes of each hop."""
        epochs = [(each.newest_s, each.layouts) for each in self.epochs]
        return [routes_of(hop, epochs) for hop in self.hops.hops]

    @property
    def layouts(self) -> Sequence[StoreLayout]:
        """Those of the present epoch."""
        return self.epochs[-1].layouts

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        """The order of streams among tuples of one feed position."""
        return {name: rank for rank, name in enumerate(sorted(self.hops.inputs))}

    @cached_property
    def _segments(self) -> Mapping[tuple[int, int, int], list[Segment]]:
        found: defaultdict[tuple[int, int, int], list[Segment]] = defaultdict(list)
        for number, epoch in enumerate(self.epochs):
            for each in epoch.segments:
                found[number, each.layout, each.group].append(each)
        return found

    def segments(self, epoch: int, layout: StoreLayout, group: int) -> Sequence[Segment]:
        """Return what a group has of a layout, from the batches before."""
        number = self.epochs[epoch].layouts.index(layout)
        return self._segments.get((epoch, number, group), ())

    def stored(self, epoch: int, layout: StoreLayout, group: int) -> Iterator[StoredRows]:
        """Read what a group has of a layout of an epoch."""
        for each in self.segments(epoch, layout, group):
            yield read_segment(self.root / each.path)

    def arrived(self, layout: StoreLayout, group: int) -> Iterator[StoredRows]:
        """Read what a group was sent of a layout in this batch, once its level is over."""
        path = self.root / self.new_path(layout, group)
        if path.exists():
            yield read_segment(path, is_new=True)

    def new_path(self, layout: StoreLayout, group: int, tier: int = 0) -> str:
        """Return where a task writes a segment, below the root."""
        number = self.layouts.index(layout)
        return f"state/{self.epochs[-1].number}/{number}/{group}/{self.name}-{tier}.arrow"
