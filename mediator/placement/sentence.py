"""One sentence for each choice: what decided, by which figures, and who is out for which reason.

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

_SHOWN_AT_MOST: Final = 5
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
    """Says why choices are as they are; what choices share is put into words once."""

    def __init__(
        self, ranking: NodeRank, candidates: Iterable[Candidate], order: SystemOrder
    ) -> None:
        self._ranks = {rank.node: rank for rank in ranking.walk()}
        self._systems = {candidate.name: candidate for candidate in candidates}
        self._order = order
        self._sentences: dict[int, tuple[SystemChoice, str]] = {}
        self._compared: dict[int, tuple[Scores, str]] = {}
        self._out: dict[tuple[str, tuple[str, ...]], str] = {}

    def of(self, choice: SystemChoice) -> str:
        # The choice is kept with its sentence, so that no other object can get its id.
        kept = self._sentences.get(id(choice))
        if kept is None:
            throttle()
            text = self._because(choice) + self._figures(choice) + self._excluded(choice) + "."
            kept = self._sentences[id(choice)] = choice, text
        return kept[1]

    def _because(self, choice: SystemChoice) -> str:
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
        alone = rank is not None and not rank.children
        return f"{by} decides for itself" if alone else f"{by} goes by the mean of its fields"

    def _required(self, choice: SystemChoice) -> str:
        """Name the capabilities that are required of a node, or of the fields of a cache group."""
        rank, scores = self._ranks.get(choice.by), choice.scores
        ranks = (
            [rank] if rank else [self._ranks[name] for name in (scores.shares if scores else ())]
        )
        return _listed(sorted({name for each in ranks for name in each.requires}))

    def _figures(self, choice: SystemChoice) -> str:
        """Say by what the system was chosen, or would be if nothing held it."""
        if choice.required:
            return self._required_figures(choice, choice.required)
        if choice.scores is None:
            text = self._default(choice.by, self._running(choice))
        else:
            text = self._compared_by(choice.scores, choice)
        return f"; by what is known today, {text}" if choice.kind == "pinned" else f": {text}"

    def _required_figures(self, choice: SystemChoice, required: RequiredSystem) -> str:
        """Say what a required system costs, also where data holds another one."""
        held = f"; {required}" if choice.kind == "pinned" else ""
        return held + self.cost(choice.scores, required)

    def cost(self, scores: Scores | None, required: RequiredSystem) -> str:
        """Say which system scores higher than a required one, and why; else nothing."""
        if scores is None or (better := scores.better_than(required.system)) is None:
            return ""
        one, two = (number(scores.by_system[name]) for name in (better, required.system))
        where = "" if scores.node == required.node else f" for {title_of(scores.node)}"
        figures = self._decisive(scores, better, required.system)
        return f", though {better} would score {one} against {two}{where}: {figures}"

    def _running(self, choice: SystemChoice) -> tuple[str, ...]:
        """Return the systems that could have been chosen.

        A default is to do all that its class requires, unless no system can.
        """
        if choice.scores is not None:
            return choice.eligible
        able = self._able(choice.by)
        return tuple(s for s in choice.eligible if s in able or choice.eligible[0] not in able)

    def _compared_by(self, scores: Scores, choice: SystemChoice) -> str:
        kept = self._compared.get(id(scores))
        if kept is None:
            text = self._comparison(scores, choice.by, choice.eligible)
            kept = self._compared[id(scores)] = scores, text
        return kept[1]

    def _comparison(self, scores: Scores, by: str, eligible: tuple[str, ...]) -> str:
        first, *others = scores.ranked(eligible)
        if not others:
            return f"only {first} is left"
        alike = [
            name for name in (first, *others) if scores.by_system[name] == scores.by_system[first]
        ]
        if len(alike) > 1:
            return f"{_listed(alike)} score alike, and {self._default(by, alike)}"
        return self._decisive(scores, first, others[0])

    def _decisive(self, scores: Scores, first: str, second: str) -> str:
        """Compare the best two by the metric that sets them apart most."""
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
        name, statistic = most = max(gains, key=lambda key: gains[key])
        subject = f"the 99th percentile of {name_of(name)}" if statistic == "p99" else name_of(name)
        compared = self._compare(name, statistic, first, second)
        return f"{compared}, and {subject} is {share(shares[most])} of the score"

    def _compare(self, name: Metric, statistic: Statistic, first: str, second: str) -> str:
        systems = (self._systems[first], self._systems[second])
        known = [s.p99 if statistic == "p99" else s.metrics for s in systems]
        one, two = (figures.get(name, 0.0) for figures in known)
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
        all_of_it = f"can do all that is required of {title_of(_scope(by))}"
        able = first in self._able(by)
        if not others:
            return f"only {first} {all_of_it}" if able else f"only {first} is left"
        those = f"of the systems that {all_of_it}, " if able else ""
        return those + self._least(self._systems[first], [self._systems[name] for name in others])

    def _least(self, first: Candidate, others: Sequence[Candidate]) -> str:
        """Say that none loses less in a crash, and what ends a tie."""
        measured = [system for system in others if system.metrics or not first.metrics]
        if first.loses_s < min((system.loses_s for system in measured), default=inf):
            losses = [f"{system.name} {_loss(system)}" for system in measured[:_SHOWN_AT_MOST]]
            figures = "; ".join(filter(None, (_loss(first), ", ".join(losses))))
            return f"{first.name} loses least in a crash ({figures})"
        role = (
            "holds the materialised view"
            if first.name == self._order.view
            else "was registered first"
        )
        return f"none is known to lose less in a crash than {first.name}, which {role}"

    def _able(self, by: str) -> tuple[str, ...]:
        """Return the systems that can do all that the class of a node requires."""
        return self._ranks[_scope(by)].eligible

    def _excluded(self, choice: SystemChoice) -> str:
        if choice.required:
            return ""
        by = choice.by if choice.scores else _scope(choice.by)
        key = by, self._running(choice)
        if key not in self._out:
            out = [name for name in self._systems if name not in key[1]]
            shown = [f"{name} ({self._reason(choice, by, name)})" for name in out[:_SHOWN_AT_MOST]]
            more = [f"{len(out) - _SHOWN_AT_MOST} others"] if len(out) > _SHOWN_AT_MOST else []
            self._out[key] = f"; out: {_listed([*shown, *more])}" if out else ""
        return self._out[key]

    def _reason(self, choice: SystemChoice, by: str, system: str) -> str:
        """Say what keeps a system out: of a group, first what its own fields say."""
        shares = choice.scores.shares if choice.scores and "#" in by else ()
        nodes = [*(self._ranks[name] for name in shares), self._ranks[by.partition("#")[0]]]
        return next(filter(None, (node.obstacle(system) for node in nodes)), "")


def _scope(by: str) -> str:
    """Return the class that a field or cache group is of; the database is its own."""
    return by.partition("#")[0].partition(".")[0]


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _times(better: float, worse: float) -> str:
    ratio = better / worse if worse > 0 else inf
    if _TWICE[0] <= ratio < _TWICE[1]:
        return "twice as fast as"
    return f"{ratio:.3g} times as fast as" if ratio < inf else "faster than"


def _loss(system: Candidate) -> str:
    return seconds(system.loses_s) if system.loses_s < inf else "unknown"
