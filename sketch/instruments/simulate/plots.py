"""Plots of a comparison as SVG, for light and dark pages alike."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any, Final

import numpy as np

from sketch.instruments.simulate.comparison import ESTIMATORS, Comparison

__all__ = ["PlotsMissing", "cost_plot", "latency_plot", "reads_plot", "sweep_plot"]

_INK: Final = "#010203"
"""Drawn in the colour of the page's text: replaced by `currentColor` in what is written."""

_COLOURS: Final = ("#2a9d8f", "#e9a23b", "#d1495b", "#5b7db1", "#8e6bbf")
_COLOUR_OF: Final = dict(zip(ESTIMATORS, _COLOURS, strict=False))
_SHORTEST_S: Final = 0.04
"""Where a TTL of 0 is drawn on a logarithmic scale."""


class PlotsMissing(ImportError):
    """Matplotlib is not there: it comes with the extra `plots`."""


_SETTINGS: Final[Any] = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), _INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), _INK),
    "svg.fonttype": "none",
    "svg.hashsalt": "portolan",
    "font.size": 10,
}


def cost_plot(comparison: Comparison) -> str:
    """Return what each part of the cost is, for each estimator."""
    weights = comparison.question.weights
    accesses = [
        max(1, entry.run.tally.reads + entry.run.tally.writes) for entry in comparison.entries
    ]
    tallies = [entry.run.tally for entry in comparison.entries]
    partitions = {
        "misses and revalidations": [weights.miss * t.origin_reads for t in tallies],
        "stale reads": [weights.stale * t.stale for t in tallies],
        "invalidations": [weights.invalidation * t.invalidations for t in tallies],
    }
    shares = {
        name: [value / count for value, count in zip(values, accesses, strict=True)]
        for name, values in partitions.items()
    }
    rates = [weights.false_positives * tally.filter_rate for tally in tallies]
    return _stacked(comparison, {**shares, "false positives": rates}, "cost of an access")


def reads_plot(comparison: Comparison) -> str:
    """Return who answered reads, for each estimator."""
    tallies = [entry.run.tally for entry in comparison.entries]
    partitions = {
        "client's own cache": [t.client_hits / max(1, t.reads) for t in tallies],
        "shared cache": [t.shared_hits / max(1, t.reads) for t in tallies],
        "origin: revalidation": [t.revalidations / max(1, t.reads) for t in tallies],
        "origin: miss": [t.misses / max(1, t.reads) for t in tallies],
    }
    return _stacked(comparison, partitions, "share of the reads")


def sweep_plot(comparison: Comparison) -> str:
    """Return the cost of every static TTL, and of the other estimators."""
    static = comparison.of("static")

    def draw(axes: Any) -> None:
        if static is not None:
            ttls_s, costs = zip(*static.tried, strict=True)
            shown = [max(ttl_s, _SHORTEST_S) for ttl_s in ttls_s]
            axes.plot(
                shown, costs, marker="o", markersize=3, color=_COLOUR_OF["static"], label="static"
            )
        for entry in comparison.entries:
            if entry is not static:
                colour = _COLOUR_OF[entry.name]
                axes.axhline(entry.cost, color=colour, linestyle="--", label=entry.name)
        axes.set_xscale("log")
        axes.set_xlabel("static life in seconds; the leftmost point is none")
        axes.set_ylabel("cost of an access")
        axes.set_ylim(bottom=0)

    return _drawn(draw)


def latency_plot(comparison: Comparison) -> str:
    """Return which share of the reads was answered within which time."""

    def draw(axes: Any) -> None:
        shares = np.linspace(0, 100, 401)
        for entry in comparison.entries:
            times = np.frombuffer(entry.run.tally.latencies, np.float64) * 1_000
            if len(times):
                axes.plot(
                    np.percentile(times, shares),
                    shares,
                    color=_COLOUR_OF[entry.name],
                    label=entry.name,
                )
        axes.set_xlabel("milliseconds")
        axes.set_ylabel("% of the reads answered")

    return _drawn(draw)


def _stacked(comparison: Comparison, partitions: dict[str, list[float]], label: str) -> str:
    names = [entry.name for entry in comparison.entries]

    def draw(axes: Any) -> None:
        left = np.zeros(len(names))
        for (name, values), colour in zip(partitions.items(), _COLOURS, strict=False):
            axes.barh(names, values, left=left, color=colour, label=name, height=0.6)
            left = left + np.asarray(values)
        axes.invert_yaxis()
        axes.set_xlabel(label)

    return _drawn(draw)


def _drawn(draw: Callable[[Any], None]) -> str:
    """Draw, and return the SVG element.

    Raises:
        PlotsMissing: Matplotlib is not there.
    """
    try:
        from matplotlib import rc_context  # noqa: PLC0415 - an extra, and slow to import
        from matplotlib.figure import Figure  # noqa: PLC0415 - the same
    except ImportError as error:
        raise PlotsMissing("Plots need matplotlib: install portolan[plots].") from error
    with rc_context(rc=_SETTINGS):
        figure = Figure(figsize=(7.2, 3.2), layout="constrained")
        axes = figure.subplots()
        draw(axes)
        axes.set_facecolor("none")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        written = StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    text = written.getvalue()
    return text[text.index("<svg") :].replace(_INK, "currentColor")
