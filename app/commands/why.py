"""``portolan why``: where a database, a class or a field is placed, and why, on one page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from app.commands.consoles import console
from app.commands.running import AdminUrl, KeyFile, at_admin_port

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["why"]


def why(
    node: Annotated[str, typer.Argument(help="database, database.class or database.class.field.")],
    *,
    url: AdminUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Explain where something is placed: the sentence, the systems, their scores and figures."""
    path = "/".join(quote(name, safe="") for name in node.split(".", 2))
    with at_admin_port(url, key_file) as service:
        explained = service.document("GET", f"/placements/{path}")
    console.print(f"{node} is on {explained['system']}.", style="bold", markup=False)
    console.print(explained["why"], markup=False)
    console.print(_candidates(explained))
    for each in explained["thresholds"]:
        if each["below"] is not None or each["above"] is not None:
            console.print(_threshold(each), markup=False)


def _candidates(explained: Mapping[str, Any]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("system", "score", "reads", "writes", "by"):
        table.add_column(heading, overflow="fold")
    scored = explained["scores"]
    order = sorted(explained["candidates"], key=lambda name: -scored.get(name, -1.0))
    for name in order:
        one = explained["candidates"][name]
        score = one["score"] if one["score"] is not None else scored.get(name)
        out = one["dropped"] or explained["dropped"].get(name)
        table.add_row(
            f"[bold]{name}[/bold]" if name == explained["system"] else name,
            "" if score is None else f"{score:.3f}",
            *(_speed(one["metrics"], kind) for kind in ("read", "write")),
            f"out: {out}" if out else "; ".join(map(_term, one["terms"])),
        )
    return table


def _speed(metrics: Mapping[str, float], kind: str) -> str:
    latency, rate = metrics.get(f"{kind}_latency"), metrics.get(f"{kind}_throughput")
    parts = (latency and f"{latency * 1000:.3g} ms", rate and f"{rate:,.0f}/s")
    return ", ".join(part for part in parts if part)


def _term(term: Mapping[str, Any]) -> str:
    return f"{term['metric']} {term['f']:.2f} of {term['weight']:g}"


def _threshold(each: Mapping[str, Any]) -> str:
    sides = [f"{side} {each[side]:.4g}" for side in ("below", "above") if each[side] is not None]
    return f"It would move if {each['metric']} of {each['system']} were {' or '.join(sides)}."
