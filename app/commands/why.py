"""``portolan why``: explain where a database, a class or a field is placed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from app.commands.consoles import print_result
from app.commands.running import AdminUrl, Json, KeyFile, admin_service
from mediator.schema.ids import FIELD_NAME, NAME

__all__ = ["why"]


def _segments(text: str) -> str:
    database, *names = text.split(".")
    forms = zip((NAME, NAME, FIELD_NAME), (database, *names), strict=False)
    if len(names) > 2 or not all(form.fullmatch(name) for form, name in forms):  # noqa: PLR2004 - class and field
        raise typer.BadParameter("DATABASE, DATABASE.CLASS or DATABASE.CLASS.FIELD is expected.")
    return text


def why(
    node: Annotated[
        str,
        typer.Argument(
            metavar="DATABASE[.CLASS[.FIELD]]", callback=_segments, help="The node to explain."
        ),
    ],
    *,
    url: AdminUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Explain where a database, a class or a field is placed, by which figures.

    For each candidate it prints the score with its terms, or the reason for its exclusion; then the
    figures at which another system would win. For a class with batching, how long operations wait.
    """
    with admin_service(url, key_file) as service:
        explanation = service.request("GET", f"/placements/{node.replace('.', '/')}")
    print_result(explanation, _page(node, explanation), json=json)


def _page(node: str, explanation: dict[str, Any]) -> Iterator[str]:
    from mediator.placement.figures import name_of, number

    yield f"{node} is placed on {explanation['system']}."
    yield explanation["why"]
    if explanation["requires"]:
        yield f"It requires {', '.join(map(name_of, explanation['requires']))}."
    candidates = explanation["candidates"]
    width = max(map(len, candidates), default=0)
    yield ""
    for name, candidate in candidates.items():
        yield f"  {name:{width}}  {_candidate(candidate)}"
    if margin := explanation["margin"]:
        yield ""
        yield f"The runner-up is {margin['runner_up']}, {number(margin['difference'])} behind."
    for threshold in explanation["thresholds"]:
        yield from _thresholds(threshold)
    for wait in explanation["batching"]:
        yield ""
        yield _batching(wait)


def _batching(wait: dict[str, Any]) -> str:
    from mediator.placement.figures import seconds

    waits = (
        f"A single {wait['operation']} on {wait['system']} waits up to {seconds(wait['wait_s'])}"
    )
    return f"{waits} for others. {wait['why']}"


def _candidate(candidate: dict[str, Any]) -> str:
    from mediator.placement.figures import number

    if candidate["dropped"]:
        return f"out: {candidate['dropped']}"
    if candidate["score"] is None:
        return "no score"
    terms = "; ".join(map(_term, candidate["terms"]))
    score = f"score {number(candidate['score'])}"
    return f"{score} = {terms}" if terms else score


def _term(term: dict[str, Any]) -> str:
    from mediator.placement.figures import metric, name_of, number

    name = term["metric"]
    statistic = "" if term["statistic"] == "mean" else f" ({term['statistic']})"
    goal = "by its utility"
    if term["goal"] is not None:
        goal = f"for a goal of {metric(term['goal'], name)}"
    measured = f"{name_of(name)}{statistic} {metric(term['measured'], name)} {goal}"
    return f"{measured}: {number(term['f'])}, weight {number(term['weight'])}"


def _thresholds(threshold: dict[str, Any]) -> Iterator[str]:
    from mediator.placement.figures import metric, name_of

    name = threshold["metric"]
    for side in ("below", "above"):
        if (value := threshold[side]) is not None:
            measured = metric(threshold["measured"], name)
            figure = f"{name_of(name)} {side} {metric(value, name)} instead of {measured}"
            yield f"Another system would be chosen if {threshold['system']} had a {figure}."
