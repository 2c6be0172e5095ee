"""One sentence for each choice: the deciding reason, its figures, and why systems are excluded.

Schemas, placements, advice, what-if, proposals and pages all show this sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Final

from mediator.base.offload import throttle
from mediator.placement.candidates import Candidate
from mediator.placement.figures import metric, name_of, number, seconds, share
from mediator.placement.rank import NodeRank, title_of
from mediator.placement.required import RequiredSystem
from mediator.placement.scores import Scores, SystemChoice, SystemOrder, terms
from mediator.placement.utility import fulfilment
from mediator.schema.annotations import Metric, Statistic

__all__ = ["Sentences"]

_MAX_LISTED: Final = 5
_TWICE: Final = (1.95, 2.05)
_VERBS: Final[Mapping[Metric, str]] = {
    Metric.READ_LATENCY: "reads",
    Metric.READ_THROUGHPUT: "reads",
    Metric.READ_AVAILABILITY: "answers reads",
    Metric.WRITE_LATENCY: "writes",
    Metric.WRITE_THROUGHPUT: "writes",
    Metric.WRITE_AVAILABILITY: "takes writes",
}


class Sentences:
    """Explains choices in sentences; shared text is formatted once."""

    def __init__(
        self, ranking: NodeRank, candidates: Iterable[Candidate], order: SystemOrder
    ) -> None:
        self._ranks = {rank.node: rank for rank in ranking.walk()}
        self._systems = {candidate.name: candidate for candidate in candidates}
        self._order = order
        self._sentences: dict[int, tuple[SystemChoice, str]] = {}
        self._comparisons: dict[int, tuple[Scores, str]] = {}
        self._exclusions: dict[tuple[str, tuple[str, ...]], str] = {}

    def of(self, choice: SystemChoice) -> str:
        # The choice is stored with its sentence, so that no other object can get its id.
        entry = self._sentences.get(id(choice))
        if entry is None:
            throttle()
            text = self._cause(choice) + self._figures(choice) + self._excluded(choice) + "."
            entry = self._sentences[id(choice)] = choice, text
        return entry[1]

    def _cause(self, choice: SystemChoice) -> str:
        by, rank = title_of(choice.by), self._ranks.get(choice.by)
        match choice.kind:
            case "pinned":
                return f"{choice.system} holds its data, which only a migration moves"
            case "required" | "overridden":
                return str(choice.required)
            case "default" if rank and rank.votes:
                return f"{by} has fields without goals, so it is on the default system"
            case "default":
                return "nothing is required of it, so it is on the default system"
            case "follows":
                return f"nothing is required of it, so it follows {by}"
            case "group":
                return f"{by} stays together, by the mean of its fields"
        required = self._required(choice)
        if choice.kind == "bound":
            reason = f"it requires {required}" if required else "mode entity splits no object"
            return f"{by} stays on one system, as {reason}"
        if required:
            return f"{by} requires {required}"
        is_field = rank is not None and not rank.children
        return f"{by} decides for itself" if is_field else f"{by} goes by the mean of its fields"

    def _required(self, choice: SystemChoice) -> str:
        """List the required capabilities of a node, or of the fields of a cache group."""
        rank, scores = self._ranks.get(choice.by), choice.scores
        ranks = (
            [rank] if rank else [self._ranks[name] for name in (scores.shares if scores else ())]
        )
        return _join_names(sorted({name for node_rank in ranks for name in node_rank.requires}))

    def _figures(self, choice: SystemChoice) -> str:
        """Format the figures by which the system was chosen, or would be if no data were held."""
        if choice.required:
            return self._required_figures(choice, choice.required)
        if choice.scores is None:
            text = self._default(choice.by, self._contenders(choice))
        else:
            text = self._compared_by(choice.scores, choice)
        return f"; by what is known today, {text}" if choice.kind == "pinned" else f": {text}"

    def _required_figures(self, choice: SystemChoice, required: RequiredSystem) -> str:
        """Format the cost of a required system, also where another one holds the data."""
        reason = f"; {required}" if choice.kind == "pinned" else ""
        return reason + self.cost(choice.scores, required)

    def cost(self, scores: Scores | None, required: RequiredSystem) -> str:
        """Format which system scores higher than a required one, and why; else nothing."""
        if scores is None or (better := scores.better_than(required.system)) is None:
            return ""
        one, two = (number(scores.by_system[name]) for name in (better, required.system))
        where = "" if scores.node == required.node else f" for {title_of(scores.node)}"
        figures = self._decisive(scores, better, required.system)
        return f", though {better} would score {one} against {two}{where}: {figures}"

    def _contenders(self, choice: SystemChoice) -> tuple[str, ...]:
        """Return the systems that could have been chosen.

        A default must be able to do everything its class requires, unless no system can.
        """
        if choice.scores is not None:
            return choice.eligible
        able_systems = self._able_systems(choice.by)
        return tuple(
            s
            for s in choice.eligible
            if s in able_systems or choice.eligible[0] not in able_systems
        )

    def _compared_by(self, scores: Scores, choice: SystemChoice) -> str:
        entry = self._comparisons.get(id(scores))
        if entry is None:
            text = self._comparison(scores, choice.by, choice.eligible)
            entry = self._comparisons[id(scores)] = scores, text
        return entry[1]

    def _comparison(self, scores: Scores, by: str, eligible: tuple[str, ...]) -> str:
        first, *others = scores.ranked(eligible)
        if not others:
            return f"only {first} is left"
        alike = [
            name for name in (first, *others) if scores.by_system[name] == scores.by_system[first]
        ]
        if len(alike) > 1:
            return f"{_join_names(alike)} score alike, and {self._default(by, alike)}"
        return self._decisive(scores, first, others[0])

    def _decisive(self, scores: Scores, first: str, second: str) -> str:
        """Compare the best two by the metric that distinguishes them most."""
        gains: dict[tuple[Metric, Statistic], float] = {}
        shares: dict[tuple[Metric, Statistic], float] = {}
        requirements = {node: self._ranks[node].requirements for node in scores.shares}
        for weight, requirement in terms(scores, requirements):
            if requirement is None:
                continue
            key = requirement.metric, requirement.statistic
            one, two = (
                self._systems[name].measured(requirement) or 0.0 for name in (first, second)
            )
            gain = weight * (fulfilment(requirement, one) - fulfilment(requirement, two))
            gains[key] = gains.get(key, 0.0) + gain
            shares[key] = shares.get(key, 0.0) + weight
        name, statistic = decisive = max(gains, key=lambda key: gains[key])
        subject = f"the 99th percentile of {name_of(name)}" if statistic == "p99" else name_of(name)
        comparison = self._compare(name, statistic, first, second)
        return f"{comparison}, and {subject} is {share(shares[decisive])} of the score"

    def _compare(self, name: Metric, statistic: Statistic, first: str, second: str) -> str:
        systems = (self._systems[first], self._systems[second])
        tables = [s.p99 if statistic == "p99" else s.metrics for s in systems]
        one, two = (figures.get(name, 0.0) for figures in tables)
        values = f"({metric(one, name)}, {metric(two, name)})"
        better, worse = (two, one) if name.small_is_good else (one, two)
        if better <= worse:
            return f"the {name_of(name)} of {first} suits it better than that of {second} {values}"
        if name.is_ratio:
            return f"{first} {_VERBS[name]} more reliably than {second} {values}"
        return f"{first} {_VERBS[name]} {_times(better, worse)} {second} {values}"

    def _default(self, by: str, systems: Sequence[str]) -> str:
        first, *others = systems
        if first == self._order.named:
            return f"the schema names {first} as default"
        ability = f"can do all that is required of {title_of(_scope(by))}"
        is_able = first in self._able_systems(by)
        if not others:
            return f"only {first} {ability}" if is_able else f"only {first} is left"
        condition = f"of the systems that {ability}, " if is_able else ""
        return condition + self._crash_loss(
            self._systems[first], [self._systems[name] for name in others]
        )

    def _crash_loss(self, first: Candidate, others: Sequence[Candidate]) -> str:
        """Format that no other system loses less in a crash, or how a tie ends."""
        comparable = [system for system in others if system.metrics or not first.metrics]
        if first.loses_s < min((system.loses_s for system in comparable), default=inf):
            losses = [f"{system.name} {_loss(system)}" for system in comparable[:_MAX_LISTED]]
            figures = "; ".join(filter(None, (_loss(first), ", ".join(losses))))
            return f"{first.name} loses least in a crash ({figures})"
        role = (
            "holds the materialised view"
            if first.name == self._order.view
            else "was registered first"
        )
        return f"none is known to lose less in a crash than {first.name}, which {role}"

    def _able_systems(self, by: str) -> tuple[str, ...]:
        """Return the systems that can do everything the class of a node requires."""
        return self._ranks[_scope(by)].eligible

    def _excluded(self, choice: SystemChoice) -> str:
        if choice.required:
            return ""
        by = choice.by if choice.scores else _scope(choice.by)
        key = by, self._contenders(choice)
        if key not in self._exclusions:
            excluded = [name for name in self._systems if name not in key[1]]
            listed = [
                f"{name} ({self._reason(choice, by, name)})" for name in excluded[:_MAX_LISTED]
            ]
            remainder = (
                [f"{len(excluded) - _MAX_LISTED} others"] if len(excluded) > _MAX_LISTED else []
            )
            self._exclusions[key] = (
                f"; out: {_join_names([*listed, *remainder])}" if excluded else ""
            )
        return self._exclusions[key]

    def _reason(self, choice: SystemChoice, by: str, system: str) -> str:
        """Return why a system is excluded: of a group, first the reasons of its fields."""
        shares = choice.scores.shares if choice.scores and "#" in by else ()
        nodes = [*(self._ranks[name] for name in shares), self._ranks[by.partition("#")[0]]]
        return next(filter(None, (node.obstacle(system) for node in nodes)), "")


def _scope(by: str) -> str:
    """Return the class of a field or cache group; the database is its own scope."""
    return by.partition("#")[0].partition(".")[0]


def _join_names(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _times(better: float, worse: float) -> str:
    ratio = better / worse if worse > 0 else inf
    if _TWICE[0] <= ratio < _TWICE[1]:
        return "twice as fast as"
    return f"{ratio:.3g} times as fast as" if ratio < inf else "faster than"


def _loss(system: Candidate) -> str:
    return seconds(system.loses_s) if system.loses_s < inf else "unknown"
