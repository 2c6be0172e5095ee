"""Parses OWL and SKOS ontologies into concepts: labels, synonyms, and typed relations.

Nothing is fetched: imports are not followed, external entities are not read, and JSON-LD, whose
contexts can be external, is not accepted.
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

MAX_TEXT: Final = 64 * 2**20
"""Maximum characters of an ontology's text."""
MAX_TERMS: Final = 8 * MAX_TEXT
"""Maximum characters of all statements' terms; prefixes and bases can expand a short text."""
MAX_CONCEPTS: Final = 50_000
MAX_LABELS: Final = 100
"""Maximum labels and synonyms of one concept."""
MAX_COMPARED: Final = 250_000
"""Maximum labels of a side: each label of the left is looked up among all of the right."""
MAX_RUN: Final = 100_000
"""Maximum characters without markup in RDF/XML; the parser appends them piece by piece."""
MAX_ENTITIES: Final = 1_000
"""Maximum entities of RDF/XML; files have some dozens, for namespaces."""

_ENTITY: Final = re.compile(
    r"""<!ENTITY\s+(?:(?P<name>[\w.:-]+)\s+(?:"(?P<quoted>[^"&%]*)"|'(?P<single>[^'&%]*)')\s*>)?"""
)
_ATTRIBUTE_LIST: Final = "<!ATTLIST"
"""Declares attributes that the parser adds to each element, which expands a short text."""
_REFERENCE: Final = re.compile(r"&([\w.:-]++);")
_LABELS: Final = (RDFS.label, SKOS.prefLabel)
_SYNONYM: Final = re.compile(r"(?i)synonym|altLabel|hiddenLabel|IAO_0000118")
_PART_OF: Final = re.compile(r"(?i)part[_ -]?of|BFO_0000050")
_CLASSES: Final = (OWL.Class, RDFS.Class, SKOS.Concept)
_FORMAT_PREFIXES: Final = ("http://www.geneontology.org/formats/", "http://www.w3.org/2002/07/owl#")
"""Prefixes of the formats' own classes, which some files include."""


@dataclass(slots=True)
class Concept:
    """One concept.

    Attributes:
        labels: Its names, preferred names first; never empty.
        preferred: The number of labels that are preferred names, not synonyms.
        parents: Its superclasses.
        wholes: Concepts that it is part of.
    """

    identifier: str
    labels: tuple[str, ...]
    preferred: int
    parents: list[str] = field(default_factory=list)
    wholes: list[str] = field(default_factory=list)

    @property
    def statements(self) -> int:
        """The number of statements about it: names, and relations to other concepts."""
        return len(self.labels) + len(self.parents) + len(self.wholes)


Ontology = Mapping[str, Concept]
"""Concepts by their identifiers, in the order of identifiers."""


def parse_ontology(text: str, name: str) -> Ontology:
    """Read RDF/XML or Turtle.

    Raises:
        InputUnfit: It is too large, in neither format, or has no concepts.
    """
    if len(text) > MAX_TEXT:
        raise InputUnfit(f"{name}: an ontology has {MAX_TEXT:,} characters at most.")
    graph = _parse(text, name)
    concepts = {str(node): _concept(graph, node) for node in sorted(_concepts_of(graph))}
    if not concepts:
        raise InputUnfit(f"{name}: the ontology has no OWL classes and no SKOS concepts.")
    if len(concepts) > MAX_CONCEPTS:
        raise InputUnfit(f"{name}: an ontology has {MAX_CONCEPTS:,} concepts at most.")
    for concept in concepts.values():
        concept.parents = [parent for parent in concept.parents if parent in concepts]
        concept.wholes = [whole for whole in concept.wholes if whole in concepts]
    return concepts


def check_labels(ontology: Ontology, name: str) -> int:
    """Return the number of labels of an ontology that is a side; a background can have more.

    Raises:
        InputUnfit: They are too many to compare.
    """
    labels = sum(len(concept.labels) for concept in ontology.values())
    if labels > MAX_COMPARED:
        raise InputUnfit(f"{name} has {labels:,} labels; {MAX_COMPARED:,} are compared at most.")
    return labels


class _BoundedGraph(Graph):
    """A graph whose terms have at most `MAX_TERMS` characters, however short the text is."""

    def __init__(self, name: str) -> None:
        super().__init__(bind_namespaces="none")
        self._name = name
        self._characters = 0

    def add(self, triple: tuple[Node, Node, Node]) -> Self:
        """Add a statement.

        Raises:
            InputUnfit: The terms together are too long.
        """
        self._characters += sum(map(_length, triple))
        if self._characters > MAX_TERMS:
            raise InputUnfit(f"{self._name}: its terms have {MAX_TERMS:,} characters at most.")
        return super().add(triple)


def _length(term: Node) -> int:
    """Return the characters of a term, including a literal's datatype."""
    datatype = term.datatype if isinstance(term, Literal) else None
    return len(str(term)) + len(datatype or "")


def _parse(text: str, name: str) -> Graph:
    beginning = text.lstrip("\ufeff \t\r\n")[:200]
    if beginning.startswith(("{", "[")) and '"' in beginning:
        raise InputUnfit(f"{name}: JSON-LD is not read, convert it to Turtle or RDF/XML.")
    form = "xml" if re.match(r"<(\?xml|!--|!DOCTYPE|rdf:RDF)", beginning) else "turtle"
    if form == "xml":
        _check_xml(text, name)
    logger = logging.getLogger("rdflib.term")  # warns of each literal that does not fit its type
    logger.setLevel(logging.ERROR)
    rdflib.NORMALIZE_LITERALS = False  # normalising would write decimals out in full
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
    """Refuse external or nested entities, and declarations that would expand the text."""
    if _ATTRIBUTE_LIST in text:
        raise InputUnfit(f"{name}: a document type that declares attributes is not read.")
    lengths: dict[str, int] = {}
    for match in _ENTITY.finditer(text):
        if match["name"] is None:
            raise InputUnfit(f"{name}: entities must be texts that refer to no other entity.")
        length = len(match["quoted"] or match["single"] or "")
        lengths[match["name"]] = max(length, lengths.get(match["name"], 0))
        if len(lengths) > MAX_ENTITIES:
            raise InputUnfit(f"{name}: an ontology has {MAX_ENTITIES:,} entities at most.")
    references = _REFERENCE.finditer(text) if lengths else ()
    size = len(text) + sum(lengths.get(reference[1], 0) for reference in references)
    if size > MAX_TEXT or max(map(len, text.split("<"))) > MAX_RUN:
        raise InputUnfit(f"{name}: its texts, or their expansions by entities, are too long.")


def _concepts_of(graph: Graph) -> Iterator[URIRef]:
    nodes = {node for kind in _CLASSES for node in graph.subjects(RDF.type, kind)}
    for node in nodes:
        if (
            isinstance(node, URIRef)
            and not str(node).startswith(_FORMAT_PREFIXES)
            and not _is_deprecated(graph, node)
        ):
            yield node


def _is_deprecated(graph: Graph, node: Node) -> bool:
    return str(graph.value(node, OWL.deprecated) or "").lower() in {"true", "1"}


def _concept(graph: Graph, node: URIRef) -> Concept:
    names = [str(name) for label in _LABELS for name in graph.objects(node, label)]
    synonyms = sorted(_synonyms(graph, node))
    names = sorted(set(names)) or [_local(node)]
    labels = tuple(dict.fromkeys([*names, *synonyms]))[:MAX_LABELS]
    concept = Concept(str(node), labels, len(names))
    for parent in graph.objects(node, RDFS.subClassOf):
        if isinstance(parent, URIRef):
            concept.parents.append(str(parent))
        elif isinstance(parent, BNode):
            concept.wholes += _wholes(graph, parent)
    for broader in (SKOS.broader, SKOS.broaderTransitive, SKOS.broadMatch):
        concept.parents += [str(parent) for parent in graph.objects(node, broader)]
    concept.parents += [str(parent) for parent in graph.subjects(SKOS.narrower, node)]
    concept.parents = sorted({*concept.parents} - {str(node)})
    concept.wholes = sorted({*concept.wholes} - {str(node)})
    return concept


def _synonyms(graph: Graph, node: URIRef) -> Iterator[str]:
    for predicate, value in graph.predicate_objects(node):
        if not _SYNONYM.search(_local(predicate)):
            continue
        if isinstance(value, Literal):
            yield str(value)
        else:  # OBO in OWL: the synonym is a node with a label
            yield from (str(name) for name in graph.objects(value, RDFS.label))


def _wholes(graph: Graph, restriction: BNode) -> Iterator[str]:
    property_ = graph.value(restriction, OWL.onProperty)
    if property_ is None or not _PART_OF.search(_local(property_)):
        return
    for filler in (OWL.someValuesFrom, OWL.allValuesFrom, OWL.hasValue):
        yield from (
            str(whole) for whole in graph.objects(restriction, filler) if isinstance(whole, URIRef)
        )


def _local(node: Node) -> str:
    return re.split(r"[#/]", str(node).rstrip("#/"))[-1]
