"""One page that shows a comparison: no scripts, nothing loaded, light and dark."""

from __future__ import annotations

import re
from html import escape
from typing import Any, Final

from sketch.instruments.simulate.comparison import Comparison, Entry
from sketch.instruments.simulate.plots import cost_plot, latency_plot, reads_plot, sweep_plot
from sketch.instruments.simulate.workload import Workload

__all__ = ["page"]

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
    "needless ones",
    "invalidations",
    "stale reads",
    "stalest read",
    "keys in the filter",
    "mean read",
    "simulated operations/s",
)


def page(comparison: Comparison) -> str:
    """Return the page.

    Raises:
        PlotsMissing: Matplotlib is not there.
    """
    title = "EstimatorUpdates of cached records, simulated"
    body = "\n".join(
        [
            f"<h1>{title}</h1>",
            f'<p class="faint">{escape(_scene(comparison))}</p>',
            f"<p>{escape(_finding(comparison))}</p>",
            _table(comparison),
            *_figures(comparison),
            "<h2>What the words mean</h2>",
            _WORDS,
        ]
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


_WORDS: Final = """<p><b>static</b> gives every copy the life that would have cost least, found by
trying. <b>cate</b> estimates lives by the rates of misses and writes; its slope and longest life
are the best that were found. Both were tuned on these very accesses. The <b>learner</b> saw them
once, and was tuned by nobody. The <b>oracle</b> knows when the next write comes: its copies end
just before. A read is <b>stale</b> if a newer version was acknowledged before it began; the
<b>stalest</b> one must lie within the bound Δ. <b>Revalidations</b> are reads that had to reach the
origin because the filter held their key; <b>needless</b> ones found the version that the client
had. An <b>invalidation</b> is a write to something that caches held.</p>"""


def _scene(comparison: Comparison) -> str:
    world, weights = comparison.prepared.world, comparison.question.weights
    work = world.workload
    caches = ["client"] * world.client_caches + [layer.name for layer in world.layers]
    return (
        f"{work.mix.about}: {work.operations:,} operations{_warm_up(work)} of"
        f" {work.clients} clients on {work.records:,} records, {work.ops_per_s:g} in a second;"
        f" caches: {', '.join(caches) or 'none'}; bound Δ = {world.bound_s:g} s; lives up to"
        f" {world.longest_s:g} s; seed {world.seed}. Cost of an access ="
        f" {weights.invalidation:g} · invalidations + {weights.stale:g} · stale reads +"
        f" {weights.miss:g} · reads at the origin, each by accesses,"
        f" + {weights.false_positives:g} · false positive rate."
    )


def _warm_up(work: Workload) -> str:
    return f" (after {work.warm_up:,} that are not counted)" if work.warm_up else ""


def _finding(comparison: Comparison) -> str:
    """Say in a sentence what came out."""
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
        f"Against the best static life of {static.settings['life_s']:.3g} s: {', '.join(caption)}."
        f" Reads beyond the bound: {beyond}."
    )


def _table(comparison: Comparison) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in ("estimator", *_COLUMNS))
    rows = "\n".join(map(_row, comparison.entries))
    return f'<div class="wide"><table>\n<tr>{head}</tr>\n{rows}\n</table></div>'


def _row(entry: Entry) -> str:
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


def _figures(comparison: Comparison) -> list[str]:
    plots = (
        ("What each costs", cost_plot, "Less is better."),
        (
            "Every static life",
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
        f"<h2>{title}</h2>\n<figure>{_own_ids(plot(comparison), number)}"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
        for number, (title, plot, caption) in enumerate(plots)
    ]


def _own_ids(svg: str, number: int) -> str:
    """Make the ids of a plot its own: several lie in one page."""
    svg = re.sub(r'\bid="', f'id="f{number}-', svg)
    return re.sub(r'(href="#|url\(#)', rf"\g<1>f{number}-", svg)
