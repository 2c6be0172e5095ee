"""The context of a batch's tasks: hops, routes, stored rows, and paths of files."""

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
        root: The directory of the state, which all machines can access.
        staging: The directory of results until the batch is committed.
        name: The prefix of the files of this execution of the batch.
        epochs: The stored epochs; the last one takes new rows.
        parallelism: The number of partition groups.
        watermark_s: Earlier tuples are late.
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
        epochs = [(epoch.newest_s, epoch.layouts) for epoch in self.epochs]
        return [routes_of(hop, epochs) for hop in self.hops.hops]

    @property
    def layouts(self) -> Sequence[StoreLayout]:
        """The layouts of the current epoch."""
        return self.epochs[-1].layouts

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        """The order of streams among tuples of one feed position."""
        return {name: rank for rank, name in enumerate(sorted(self.hops.inputs))}

    @cached_property
    def _segments(self) -> Mapping[tuple[int, int, int], list[Segment]]:
        segments: defaultdict[tuple[int, int, int], list[Segment]] = defaultdict(list)
        for number, epoch in enumerate(self.epochs):
            for segment in epoch.segments:
                segments[number, segment.layout, segment.group].append(segment)
        return segments

    def segments(self, epoch: int, layout: StoreLayout, group: int) -> Sequence[Segment]:
        """Return a group's segments of a layout, from earlier batches."""
        number = self.epochs[epoch].layouts.index(layout)
        return self._segments.get((epoch, number, group), ())

    def stored(self, epoch: int, layout: StoreLayout, group: int) -> Iterator[StoredRows]:
        """Read a group's rows of a layout of an epoch."""
        for segment in self.segments(epoch, layout, group):
            yield read_segment(self.root / segment.path)

    def arrived(self, layout: StoreLayout, group: int) -> Iterator[StoredRows]:
        """Read a group's new rows of a layout in this batch, after the layout's level."""
        path = self.root / self.new_path(layout, group)
        if path.exists():
            yield read_segment(path, is_new=True)

    def new_path(self, layout: StoreLayout, group: int, tier: int = 0) -> str:
        """Return where a task writes a segment, below the root."""
        number = self.layouts.index(layout)
        return f"state/{self.epochs[-1].number}/{number}/{group}/{self.name}-{tier}.arrow"
