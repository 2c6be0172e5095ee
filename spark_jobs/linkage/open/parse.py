"""Reading a specification of open linkage strictly, and writing one.

A specification never becomes code: fields are looked up by name, and what is done with them comes
from closed lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Final, TypeVar

from spark_jobs.linkage.open.spec import (
    Clustering,
    Comparison,
    Engine,
    KeyPart,
    Level,
    Limits,
    Measure,
    OpenSpec,
    Result,
    Rule,
    Take,
)
from spark_jobs.runner.members import Members
from spark_jobs.runner.port import Input, SpecInvalid

__all__ = ["read_rules_and_comparisons", "read_spec", "written"]

MOST_RULES: Final = 32
_MOST_INPUTS: Final = 16
_MOST_COMPARISONS: Final = 32
_MOST_LEVELS: Final = 8
_MOST_COLUMNS: Final = 8
_MOST_PATTERNS: Final = 2**62
_MOST_PAIRS: Final = 10**12

_NEEDS_LENGTH: Final = {Take.PREFIX, Take.SUFFIX, Take.WORD}
_KNOWN: Final = ("cluster", "source", "record")

ChoiceT = TypeVar("ChoiceT", Clustering, Engine, Result, Take)


def read_spec(document: Mapping[str, Any]) -> OpenSpec:
    """Read a specification.

    Raises:
        SpecInvalid: It is not one.
    """
    members = Members(document)
    sources = _sources(members)
    rules, comparisons = _what_is_compared(members)
    within = members.flag("within", default=len(sources) == 1)
    if not within and len(sources) == 1:
        raise SpecInvalid("/within", "one input alone can only be compared with itself")
    truth = members.text("truth", None)
    usual = Clustering.AVERAGE if within else Clustering.ONE_PER_SOURCE
    spec = OpenSpec(
        inputs=_inputs(sources, rules, comparisons, truth),
        within=within,
        blocking=rules,
        comparisons=comparisons,
        threshold=members.number("threshold", above=0, most=1, default=0.9),
        clustering=_choice(members, "clustering", Clustering, usual),
        result=_choice(members, "result", Result, Result.CLUSTERS),
        engine=_choice(members, "engine", Engine, Engine.SPARK),
        limits=_limits(members),
        seed=members.whole("seed", least=0, most=2**31 - 1, default=1),
        known=_known(members),
        model=_model(members, comparisons),
        truth=truth,
    )
    members.end()
    return spec


def read_rules_and_comparisons(
    document: Mapping[str, Any],
) -> tuple[tuple[Rule, ...], tuple[Comparison, ...]]:
    """Read the members ``blocking`` and ``comparisons`` of a document.

    Raises:
        SpecInvalid: They are not what they should be.
    """
    members = Members(document)
    return _rules(members), _comparisons(members)


def _what_is_compared(members: Members) -> tuple[tuple[Rule, ...], tuple[Comparison, ...]]:
    rules, comparisons = _rules(members), _comparisons(members)
    proposed = members.flag("zero_config", default=False)
    if not proposed and not rules:
        raise SpecInvalid("/blocking", "rules are expected, or zero_config: true")
    if not proposed and not comparisons:
        raise SpecInvalid("/comparisons", "comparisons are expected, or zero_config: true")
    return rules, comparisons


def _sources(members: Members) -> Mapping[str, Any]:
    named = members.any("inputs")
    if not isinstance(named, Mapping) or not 0 < len(named) <= _MOST_INPUTS:
        raise SpecInvalid("/inputs", f"an object of 1 to {_MOST_INPUTS} sources is expected")
    inner = Members(named, "/inputs")
    for name in named:
        if not isinstance(name, str) or not name.isidentifier() or name == "known":
            raise SpecInvalid(inner.at(str(name)), "a name of letters, digits and _ is expected")
    return {name: inner.source(name) for name in sorted(named)}


def _inputs(
    sources: Mapping[str, Any],
    rules: tuple[Rule, ...],
    comparisons: tuple[Comparison, ...],
    truth: str | None,
) -> tuple[Input, ...]:
    read = {name for rule in rules for name in rule.columns}
    read |= {name for comparison in comparisons for name in comparison.columns}
    fields = tuple(sorted({*read, *([truth] if truth else [])} - {"id"}))
    everything = not (rules and comparisons)
    return tuple(
        Input(name, source, None if everything else fields) for name, source in sources.items()
    )


def _known(members: Members) -> Input | None:
    if "known" not in members.rest():
        return None
    return Input("known", members.source("known"), _KNOWN)


def _model(members: Members, comparisons: tuple[Comparison, ...]) -> Mapping[str, Any] | None:
    model = members.any("model", None)
    if model is not None and not comparisons:
        raise SpecInvalid("/model", "the comparisons that it was estimated for are missing")
    if model is not None and not isinstance(model, Mapping):
        raise SpecInvalid("/model", "the report `model` of an earlier run is expected")
    return model


def _limits(members: Members) -> Limits:
    inner = members.members("limits", {})
    usual = Limits()
    limits = Limits(
        inner.whole("pairs", least=1, most=_MOST_PAIRS, default=usual.pairs),
        inner.whole("block_pairs", least=1, most=10**9, default=usual.block_pairs),
    )
    inner.end()
    return limits


def _rules(members: Members) -> tuple[Rule, ...]:
    listed = _list(members, "blocking", MOST_RULES)
    return tuple(_rule(one, f"/blocking/{at}") for at, one in enumerate(listed))


def _rule(document: Any, pointer: str) -> Rule:
    if not isinstance(document, list) or not 0 < len(document) <= _MOST_COLUMNS:
        raise SpecInvalid(pointer, f"a list of 1 to {_MOST_COLUMNS} parts is expected")
    return Rule(tuple(_part(one, f"{pointer}/{at}") for at, one in enumerate(document)))


def _part(document: Any, pointer: str) -> KeyPart:
    members = Members({"column": document} if isinstance(document, str) else document, pointer)
    take = _choice(members, "take", Take, Take.WHOLE)
    least = -16 if take is Take.WORD else 1
    length = members.whole("length", least=least, most=64, default=0)
    if (take in _NEEDS_LENGTH) != bool(length):
        says = "a length is expected" if take in _NEEDS_LENGTH else "there is no length here"
        raise SpecInvalid(members.at("length"), says)
    part = KeyPart(members.text("column"), take, length)
    members.end()
    return part


def _comparisons(members: Members) -> tuple[Comparison, ...]:
    listed = _list(members, "comparisons", _MOST_COMPARISONS)
    found = tuple(_comparison(one, f"/comparisons/{at}") for at, one in enumerate(listed))
    if len({one.name for one in found}) < len(found):
        raise SpecInvalid("/comparisons", "fields are compared twice")
    if prod(len(one.level_names) for one in found) > _MOST_PATTERNS:
        raise SpecInvalid("/comparisons", "these are too many levels all together")
    return found


def _comparison(document: Any, pointer: str) -> Comparison:
    members = Members(document, pointer)
    levels = members.any("levels")
    if not isinstance(levels, list) or not 0 < len(levels) <= _MOST_LEVELS:
        reason = f"a list of 1 to {_MOST_LEVELS} levels is expected"
        raise SpecInvalid(members.at("levels"), reason)
    comparison = Comparison(
        members.texts("columns", most=_MOST_COLUMNS),
        tuple(_level(one, f"{pointer}/levels/{at}") for at, one in enumerate(levels)),
        members.flag("term_frequency", default=False),
    )
    members.end()
    if comparison.term_frequency and comparison.levels[0].measure is not Measure.EXACT:
        raise SpecInvalid(members.at("levels"), "term_frequency needs exact as the first level")
    return comparison


def _level(document: Any, pointer: str) -> Level:
    if document == Measure.EXACT:
        return Level(Measure.EXACT)
    if not isinstance(document, Mapping) or len(document) != 1:
        raise SpecInvalid(pointer, '"exact" or an object like {"jaro_winkler": 0.9} is expected')
    (name,) = document
    if name not in {one.value for one in Measure} - {Measure.EXACT.value}:
        raise SpecInvalid(pointer, f"one of {', '.join(Measure)} is expected")
    measure = Measure(name)
    most = 1e12 if measure.is_distance else 1
    above = -1e-9 if measure.is_distance else 0
    return Level(measure, Members(document, pointer).number(name, above=above, most=most))


def _choice(members: Members, name: str, of: type[ChoiceT], usual: ChoiceT) -> ChoiceT:
    said = members.text(name, usual.value)
    if said not in {one.value for one in of}:
        raise SpecInvalid(members.at(name), f"one of {', '.join(of)} is expected")
    return of(said)


def _list(members: Members, name: str, most: int) -> list[Any]:
    listed = members.any(name, [])
    if not isinstance(listed, list) or len(listed) > most:
        raise SpecInvalid(members.at(name), f"a list of at most {most} is expected")
    return listed


def written(rules: tuple[Rule, ...], comparisons: tuple[Comparison, ...]) -> dict[str, Any]:
    """Write rules and comparisons as they are read; to be put into a specification."""
    return {
        "blocking": [[_written_part(part) for part in rule.parts] for rule in rules],
        "comparisons": [
            {
                "columns": list(one.columns),
                "levels": [_written_level(level) for level in one.levels],
                "term_frequency": one.term_frequency,
            }
            for one in comparisons
        ],
    }


def _written_part(part: KeyPart) -> str | dict[str, Any]:
    if part.take is Take.WHOLE:
        return part.column
    length = {"length": part.length} if part.length else {}
    return {"column": part.column, "take": part.take.value, **length}


def _written_level(level: Level) -> str | dict[str, Any]:
    if level.measure is Measure.EXACT:
        return "exact"
    return {level.measure.value: level.limit}
