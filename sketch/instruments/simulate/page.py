"""An HTML page that shows a comparison: no scripts, no external files, light and dark."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from io import StringIO
from typing import Any, Final

import numpy as np

from sketch.instruments.simulate.comparison import ESTIMATORS, EstimatorResult, SimulationReport
from sketch.instruments.simulate.workload import YcsbWorkload

__all__ = ["PlotsMissing", "cost_plot", "latency_plot", "page", "reads_plot", "sweep_plot"]

_INK: Final = "#010203"
"""Drawn in the colour of the page's text: the SVG has `currentColor` in its place."""

_COLOURS: Final = ("#2a9d8f", "#e9a23b", "#d1495b", "#5b7db1", "#8e6bbf")
_COLOUR_OF: Final = dict(zip(ESTIMATORS, _COLOURS, strict=False))
_ZERO_TTL_S: Final = 0.04
"""The abscissa of a TTL of 0 on a logarithmic scale."""


class PlotsMissing(ImportError):
    """Matplotlib is not installed: it comes with the extra `plots`."""


_SETTINGS: Final[Any] = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), _INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), _INK),
    "svg.fonttype": "none",
    "svg.hashsalt": "portolan",
    "font.size": 10,
}


def cost_plot(comparison: SimulationReport) -> str:
    weights = comparison.question.weights
    accesses = [
        max(1, entry.run.tally.reads + entry.run.tally.writes) for entry in comparison.entries
    ]
    tallies = [entry.run.tally for entry in comparison.entries]
    terms = {
        "misses and revalidations": [weights.miss * t.origin_reads for t in tallies],
        "stale reads": [weights.stale * t.stale for t in tallies],
        "invalidations": [weights.invalidation * t.invalidations for t in tallies],
    }
    shares = {
        name: [value / count for value, count in zip(values, accesses, strict=True)]
        for name, values in terms.items()
    }
    rates = [weights.false_positives * tally.filter_rate for tally in tallies]
    return _stacked_bars(comparison, {**shares, "false positives": rates}, "cost of an access")


def reads_plot(comparison: SimulationReport) -> str:
    tallies = [entry.run.tally for entry in comparison.entries]
    terms = {
        "client's own cache": [t.client_hits / max(1, t.reads) for t in tallies],
        "shared cache": [t.shared_hits / max(1, t.reads) for t in tallies],
        "origin: revalidation": [t.revalidations / max(1, t.reads) for t in tallies],
        "origin: miss": [t.misses / max(1, t.reads) for t in tallies],
    }
    return _stacked_bars(comparison, terms, "share of the reads")


def sweep_plot(comparison: SimulationReport) -> str:
    static = comparison.of("static")

    def draw(axes: Any) -> None:
        if static is not None:
            ttls_s, costs = zip(*static.tried, strict=True)
            abscissas = [max(ttl_s, _ZERO_TTL_S) for ttl_s in ttls_s]
            axes.plot(
                abscissas,
                costs,
                marker="o",
                markersize=3,
                color=_COLOUR_OF["static"],
                label="static",
            )
        for entry in comparison.entries:
            if entry is not static:
                colour = _COLOUR_OF[entry.name]
                axes.axhline(entry.cost, color=colour, linestyle="--", label=entry.name)
        axes.set_xscale("log")
        axes.set_xlabel("static TTL in seconds; the leftmost point is none")
        axes.set_ylabel("cost of an access")
        axes.set_ylim(bottom=0)

    return _render(draw)


def latency_plot(comparison: SimulationReport) -> str:
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

    return _render(draw)


def _stacked_bars(comparison: SimulationReport, terms: dict[str, list[float]], label: str) -> str:
    names = [entry.name for entry in comparison.entries]

    def draw(axes: Any) -> None:
        left = np.zeros(len(names))
        for (name, values), colour in zip(terms.items(), _COLOURS, strict=False):
            axes.barh(names, values, left=left, color=colour, label=name, height=0.6)
            left = left + np.asarray(values)
        axes.invert_yaxis()
        axes.set_xlabel(label)

    return _render(draw)


def _render(draw: Callable[[Any], None]) -> str:
    """Return the SVG element; raises `PlotsMissing`."""
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
        buffer = StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :].replace(_INK, "currentColor")


_STYLE: Final = """
:root { color-scheme: light dark; --back: #fdfdfb; --ink: #1d2430; --faint: #66707f;
  --line: #d9dde3; }
@media (prefers-color-scheme: dark) {
  :root { --back: #14181f; --ink: #e6e9ee; --faint: #98a2b1; --line: #343b47; } }
body { background: var(--back); color: var(--ink); margin: 0 auto; max-width: 60rem;
  padding: 2rem 1rem; font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p, figcaption { max-width: 46rem; } figcaption, .faint { color: var(--faint); }
figure { margin: 1rem 0; } figure svg { width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
"""

_COLUMNS: Final = (
    "cost",
    "reads answered by caches",
    "misses",
    "revalidations",
    "needless revalidations",
    "invalidations",
    "stale reads",
    "stalest read",
    "keys in the filter",
    "mean read",
    "simulated operations/s",
)


def page(comparison: SimulationReport) -> str:
    """Return the page; raises `PlotsMissing`."""
    title = "TTLs of cached records, simulated"
    body = "\n".join(
        [
            f"<h1>{title}</h1>",
            f'<p class="faint">{escape(_describe_world(comparison))}</p>',
            f"<p>{escape(_summarise(comparison))}</p>",
            _table(comparison),
            *_figures(comparison),
            "<h2>Terms</h2>",
            _WORDS,
        ]
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


_WORDS: Final = """<p><b>static</b> gives every copy the TTL that would have cost least, found by
trying. <b>cate</b> estimates TTLs by the rates of misses and writes; its slope and longest TTL are
the best that were found. Both were tuned on these very accesses. The <b>learner</b> saw them
once, and was not tuned. The <b>oracle</b> knows when the next write comes: its copies end
just before. A read is <b>stale</b> if a newer version was acknowledged before it began; the
<b>stalest</b> one must lie within the bound Δ. <b>Revalidations</b> are reads that had to reach the
origin because the filter held their key; <b>needless</b> ones found the version that the client
had. An <b>invalidation</b> is a write to something that caches held.</p>"""


def _describe_world(comparison: SimulationReport) -> str:
    world, weights = comparison.prepared.world, comparison.question.weights
    work = world.workload
    caches = ["client"] * world.client_caches + [layer.name for layer in world.layers]
    return (
        f"{work.mix.about}: {work.operations:,} operations{_warm_up(work)} of"
        f" {work.clients} clients on {work.records:,} records, {work.ops_per_s:g} in a second;"
        f" caches: {', '.join(caches) or 'none'}; bound Δ = {world.bound_s:g} s; TTLs up to"
        f" {world.max_ttl_s:g} s; seed {world.seed}. Cost of an access ="
        f" {weights.invalidation:g} · invalidations + {weights.stale:g} · stale reads +"
        f" {weights.miss:g} · reads at the origin, each by accesses,"
        f" + {weights.false_positives:g} · false positive rate."
    )


def _warm_up(work: YcsbWorkload) -> str:
    return f" (after {work.warm_up:,} that are not counted)" if work.warm_up else ""


def _summarise(comparison: SimulationReport) -> str:
    static = comparison.of("static")
    if static is None or not static.cost:
        cheapest = min(comparison.entries, key=lambda entry: entry.cost)
        return f"The cheapest is {cheapest.name}: {cheapest.cost:.4f} for an access."
    caption = [
        f"{entry.name} {'-' if entry.cost <= static.cost else '+'}"
        f"{abs(entry.cost / static.cost - 1):.1%}"
        for entry in comparison.entries
        if entry is not static
    ]
    beyond = sum(entry.run.tally.beyond_bound for entry in comparison.entries)
    return (
        f"Against the best static TTL of {static.settings['ttl_s']:.3g} s: {', '.join(caption)}."
        f" Reads beyond the bound: {beyond}."
    )


def _table(comparison: SimulationReport) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in ("estimator", *_COLUMNS))
    rows = "\n".join(map(_row, comparison.entries))
    return f'<div class="wide"><table>\n<tr>{head}</tr>\n{rows}\n</table></div>'


def _row(entry: EstimatorResult) -> str:
    tally = entry.run.tally
    latency: Any = tally.to_json()["latency_ms"]
    cells = (
        f"{entry.cost:.4f}",
        f"{tally.hit_ratio:.1%}",
        f"{tally.misses:,}",
        f"{tally.revalidations:,}",
        f"{tally.needless:,}",
        f"{tally.invalidations:,}",
        f"{tally.stale:,}",
        f"{tally.stalest_s:.2f} s",
        f"{tally.filter_keys:,.0f}",
        f"{latency.get('mean', 0):.1f} ms",
        f"{entry.run.operations_per_s:,.0f}",
    )
    return f"<tr><td>{entry.name}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _figures(comparison: SimulationReport) -> list[str]:
    plots = (
        ("Cost of each estimator", cost_plot, "Less is better."),
        (
            "Every static TTL",
            sweep_plot,
            "Short ones miss; long ones are invalidated and keep keys in the filter.",
        ),
        ("Who answered", reads_plot, "Reads by the cache that answered them, or why none could."),
        (
            "How long reads took",
            latency_plot,
            "In virtual time: caches are near, the origin is far.",
        ),
    )
    return [
        f"<h2>{title}</h2>\n<figure>{_unique_ids(plot(comparison), number)}"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
        for number, (title, plot, caption) in enumerate(plots)
    ]


def _unique_ids(svg: str, number: int) -> str:
    """Make the ids of a plot unique: a page has several plots."""
    svg = re.sub(r'\bid="', f'id="f{number}-', svg)
    return re.sub(r'(href="#|url\(#)', rf"\g<1>f{number}-", svg)
