"""OWL and SKOS ontologies as concepts: labels, synonyms, and typed relations between concepts.

Nothing is fetched: imports are not followed, external entities are not read, and JSON-LD, whose
contexts may lie elsewhere, is not accepted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

import rdflib
from rdflib import OWL, RDF, RDFS, SKOS, BNode, Graph, Literal, URIRef
from rdflib.term import Node

from spark_jobs.runner.port import InputUnfit

__all__ = ["Concept", "Ontology", "check_labels", "parse_ontology"]

MOST_TEXT: Final = 64 * 2**20
"""Characters of an ontology's text."""
MOST_TERMS: Final = 8 * MOST_TEXT
"""Characters of the terms of all statements; prefixes and bases make long ones of a short text."""
MOST_CONCEPTS: Final = 50_000
MOST_LABELS: Final = 100
"""Labels and synonyms that are kept of one concept."""
MOST_COMPARED: Final = 250_000
"""Labels of all concepts of a side: each one of the left is looked for among all of the right."""
MOST_RUN: Final = 100_000
"""Characters without markup in RDF/XML; the parser appends them piece by piece."""
MOST_ENTITIES: Final = 1_000
"""Texts that RDF/XML gives names to; files have some dozens, for namespaces."""

_ENTITY: Final = re.compile(
    r"""<!ENTITY\s+(?:(?P<name>[\w.:-]+)\s+(?:"(?P<quoted>[^"&%]*)"|'(?P<single>[^'&%]*)')\s*>)?"""
)
_DEFAULTS: Final = "<!ATTLIST"
"""Declares attributes that the parser adds to each element: a short text makes long ones of all."""
_REFERENCE: Final = re.compile(r"&([\w.:-]++);")
_LABELS: Final = (RDFS.label, SKOS.prefLabel)
_SYNONYM: Final = re.compile(r"(?i)synonym|altLabel|hiddenLabel|IAO_0000118")
_PART: Final = re.compile(r"(?i)part[_ -]?of|BFO_0000050")
_CLASSES: Final = (OWL.Class, RDFS.Class, SKOS.Concept)
_OF_FORMATS: Final = ("http://www.geneontology.org/formats/", "http://www.w3.org/2002/07/owl#")
"""Classes of the formats themselves, which some files list among their own."""


@dataclass(slots=True)
class Concept:
    """One concept.

    Attributes:
        labels: What it is called, the preferred name first; never empty.
        preferred: How many of the labels are preferred names, not synonyms.
        parents: Concepts that it is one of.
        wholes: Concepts that it is part of.
    """

    identifier: str
    labels: tuple[str, ...]
    preferred: int
    parents: list[str] = field(default_factory=list)
    wholes: list[str] = field(default_factory=list)

    @property
    def statements(self) -> int:
        """How much is stated of it: names, and relations to other concepts."""
        return len(self.labels) + len(self.parents) + len(self.wholes)


Ontology = Mapping[str, Concept]
"""Concepts by their identifiers, in the order of these."""


def parse_ontology(text: str, name: str) -> Ontology:
    """Read RDF/XML or Turtle.

    Raises:
        InputUnfit: It is too large, is not one of these, or has no concepts.
    """
    if len(text) > MOST_TEXT:
        raise InputUnfit(f"{name}: an ontology has {MOST_TEXT:,} characters at most.")
    graph = _parse(text, name)
    concepts = {str(one): _concept(graph, one) for one in sorted(_concepts_of(graph))}
    if not concepts:
        raise InputUnfit(f"{name}: the ontology has no OWL classes and no SKOS concepts.")
    if len(concepts) > MOST_CONCEPTS:
        raise InputUnfit(f"{name}: an ontology has {MOST_CONCEPTS:,} concepts at most.")
    for concept in concepts.values():
        concept.parents = [one for one in concept.parents if one in concepts]
        concept.wholes = [one for one in concept.wholes if one in concepts]
    return concepts


def check_labels(ontology: Ontology, name: str) -> int:
    """Return how many labels an ontology has, if it may be a side; a background may have more.

    Raises:
        InputUnfit: They are too many to be compared.
    """
    labels = sum(len(concept.labels) for concept in ontology.values())
    if labels > MOST_COMPARED:
        raise InputUnfit(f"{name} has {labels:,} labels; {MOST_COMPARED:,} are compared at most.")
    return labels


class _BoundedGraph(Graph):
    """Statements with so many characters as `MOST_TERMS`, however short the text is."""

    def __init__(self, name: str) -> None:
        super().__init__(bind_namespaces="none")
        self._name = name
        self._characters = 0

    def add(self, triple: tuple[Node, Node, Node]) -> Self:
        """Add a statement.

        Raises:
            InputUnfit: The terms are too long together.
        """
        self._characters += sum(map(_length, triple))
        if self._characters > MOST_TERMS:
            raise InputUnfit(f"{self._name}: its terms have {MOST_TERMS:,} characters at most.")
        return super().add(triple)


def _length(term: Node) -> int:
    """Characters of a term, with those of the datatype that a literal has."""
    datatype = term.datatype if isinstance(term, Literal) else None
    return len(str(term)) + len(datatype or "")


def _parse(text: str, name: str) -> Graph:
    beginning = text.lstrip("\ufeff \t\r\n")[:200]
    if beginning.startswith(("{", "[")) and '"' in beginning:
        raise InputUnfit(f"{name}: JSON-LD is not read, convert it to Turtle or RDF/XML.")
    form = "xml" if re.match(r"<(\?xml|!--|!DOCTYPE|rdf:RDF)", beginning) else "turtle"
    if form == "xml":
        _check_xml(text, name)
    logger = logging.getLogger("rdflib.term")  # warns of each literal that is not of its type
    logger.setLevel(logging.ERROR)
    rdflib.NORMALIZE_LITERALS = False  # writes decimals out, with as many digits as they say
    graph = _BoundedGraph(name)
    try:
        graph.parse(data=text.lstrip("\ufeff"), format=form)
    except InputUnfit:
        raise
    except Exception as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise InputUnfit(f"{name}: this is not {form}: {reason}") from error
    return graph


def _check_xml(text: str, name: str) -> None:
    """Refuse entities that are external or refer to others, and what would multiply the text."""
    if _DEFAULTS in text:
        raise InputUnfit(f"{name}: a document type that declares attributes is not read.")
    lengths: dict[str, int] = {}
    for found in _ENTITY.finditer(text):
        if found["name"] is None:
            raise InputUnfit(f"{name}: entities must be texts that refer to no other entity.")
        length = len(found["quoted"] or found["single"] or "")
        lengths[found["name"]] = max(length, lengths.get(found["name"], 0))
        if len(lengths) > MOST_ENTITIES:
            raise InputUnfit(f"{name}: an ontology has {MOST_ENTITIES:,} entities at most.")
    references = _REFERENCE.finditer(text) if lengths else ()
    size = len(text) + sum(lengths.get(each[1], 0) for each in references)
    if size > MOST_TEXT or max(map(len, text.split("<"))) > MOST_RUN:
        raise InputUnfit(f"{name}: its texts, or what its entities make of them, are too long.")


def _concepts_of(graph: Graph) -> Iterator[URIRef]:
    found = {one for kind in _CLASSES for one in graph.subjects(RDF.type, kind)}
    for one in found:
        if (
            isinstance(one, URIRef)
            and not str(one).startswith(_OF_FORMATS)
            and not _deprecated(graph, one)
        ):
            yield one


def _deprecated(graph: Graph, one: Node) -> bool:
    return str(graph.value(one, OWL.deprecated) or "").lower() in {"true", "1"}


def _concept(graph: Graph, one: URIRef) -> Concept:
    names = [str(each) for label in _LABELS for each in graph.objects(one, label)]
    synonyms = sorted(_synonyms(graph, one))
    names = sorted(set(names)) or [_local(one)]
    labels = tuple(dict.fromkeys([*names, *synonyms]))[:MOST_LABELS]
    concept = Concept(str(one), labels, len(names))
    for parent in graph.objects(one, RDFS.subClassOf):
        if isinstance(parent, URIRef):
            concept.parents.append(str(parent))
        elif isinstance(parent, BNode):
            concept.wholes += _wholes(graph, parent)
    for broader in (SKOS.broader, SKOS.broaderTransitive, SKOS.broadMatch):
        concept.parents += [str(each) for each in graph.objects(one, broader)]
    concept.parents += [str(each) for each in graph.subjects(SKOS.narrower, one)]
    concept.parents = sorted({*concept.parents} - {str(one)})
    concept.wholes = sorted({*concept.wholes} - {str(one)})
    return concept


def _synonyms(graph: Graph, one: URIRef) -> Iterator[str]:
    for predicate, value in graph.predicate_objects(one):
        if not _SYNONYM.search(_local(predicate)):
            continue
        if isinstance(value, Literal):
            yield str(value)
        else:  # OBO in OWL: the synonym is a node with a label
            yield from (str(each) for each in graph.objects(value, RDFS.label))


def _wholes(graph: Graph, restriction: BNode) -> Iterator[str]:
    property_ = graph.value(restriction, OWL.onProperty)
    if property_ is None or not _PART.search(_local(property_)):
        return
    for filler in (OWL.someValuesFrom, OWL.allValuesFrom, OWL.hasValue):
        yield from (
            str(each) for each in graph.objects(restriction, filler) if isinstance(each, URIRef)
        )


def _local(node: Node) -> str:
    return re.split(r"[#/]", str(node).rstrip("#/"))[-1]
