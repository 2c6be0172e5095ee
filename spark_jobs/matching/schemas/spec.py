"""Specifications of `matching.schema`: what is matched with what, and what is known beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final, Self, TypeAlias

from pydantic import Discriminator, Field, Tag, model_validator

from spark_jobs.runner.port import Input
from spark_jobs.runner.specification import (
    ClassSource,
    FileSource,
    Source,
    Specification,
    SpecInvalid,
    Text,
    branch_of_source,
)

__all__ = [
    "FEEDBACK",
    "Assignment",
    "BackgroundOntology",
    "Decision",
    "Form",
    "SchemaMatchingSpec",
    "SchemaSide",
]

FEEDBACK: Final = "feedback"
_MOST_BACKGROUNDS: Final = 8
_MOST_DECISIONS: Final = 10_000


class Assignment(StrEnum):
    """How often an element may be in the result."""

    ONE_TO_ONE = "one_to_one"
    MANY_TO_MANY = "many_to_many"


class Form(StrEnum):
    """What a side is."""

    TABLE = "table"
    JSON_SCHEMA = "json_schema"
    ONTOLOGY = "ontology"


class SchemaSide(Specification):
    """One of the two schemas; exactly one member is given.

    Attributes:
        table: A class or a table: its columns are matched, by names, types and values.
        json_schema: Rows with `text`, which together are a JSON schema.
        ontology: Rows with `text`, which together are RDF/XML or Turtle: its concepts are matched.
    """

    table: Source | None = None
    json_schema: Source | None = None
    ontology: Source | None = None

    @property
    def form(self) -> Form:
        return next(form for form in Form if getattr(self, form) is not None)

    @property
    def source(self) -> FileSource | ClassSource:
        source: FileSource | ClassSource = getattr(self, self.form)
        return source

    @property
    def forms_given(self) -> int:
        return sum(getattr(self, form) is not None for form in Form)


class BackgroundOntology(Specification):
    """An ontology that is matched with nothing, but known.

    Attributes:
        ontology: Rows with `text`, which together are RDF/XML or Turtle.
    """

    ontology: Source


def _branch(document: Any) -> str:
    ontology = isinstance(document, dict) and "ontology" in document
    if ontology or isinstance(document, BackgroundOntology):
        return "(ontology)"
    return branch_of_source(document)


def _number(document: Any) -> str:
    return "(list)" if isinstance(document, list | tuple) else "(one)"


_One: TypeAlias = Annotated[
    Annotated[FileSource, Tag("(file)")]
    | Annotated[ClassSource, Tag("(class)")]
    | Annotated[BackgroundOntology, Tag("(ontology)")],
    Discriminator(_branch),
]
_Several: TypeAlias = Annotated[tuple[_One, ...], Field(min_length=1, max_length=_MOST_BACKGROUNDS)]
_Known: TypeAlias = Annotated[
    Annotated[_One, Tag("(one)")] | Annotated[_Several, Tag("(list)")], Discriminator(_number)
]


class Decision(Specification):
    """What a person decided about a pair.

    Attributes:
        left: An element: the name of a column, the names that lead to a property, joined by dots,
            or the IRI of a concept.
    """

    left: Text
    right: Text
    accepted: bool


class SchemaMatchingSpec(Specification):
    """Two schemas, and what is known beforehand.

    Attributes:
        background: Rows `source`, `target`, `relation`, `confidence`: relations of terms; or an
            ontology; or several of these.
        feedback: Rows `left`, `right`, `accepted`: decisions of people, as in `decisions`.
        min_confidence: Of the correspondences in the result.
        longest_path: Relations that a path in the background graph may have.
        min_path_score: The score that it must have.
    """

    left: SchemaSide
    right: SchemaSide
    background: _Known | None = None
    feedback: Source | None = None
    decisions: Annotated[tuple[Decision, ...], Field(max_length=_MOST_DECISIONS)] = ()
    assignment: Assignment = Assignment.ONE_TO_ONE
    min_confidence: Annotated[float, Field(ge=0, le=1)] = 0.5
    longest_path: Annotated[int, Field(ge=1, le=4)] = 2
    min_path_score: Annotated[float, Field(ge=0, le=1)] = 0.6

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, side in (("left", self.left), ("right", self.right)):
            if side.forms_given != 1:
                reason = "one of table, json_schema and ontology is expected"
                raise SpecInvalid(f"/{name}", reason)
        forms = {self.left.form, self.right.form}
        if Form.ONTOLOGY in forms and len(forms) > 1:
            raise SpecInvalid("/right", "an ontology is matched with an ontology only")
        return self

    @property
    def inputs(self) -> tuple[Input, ...]:
        inputs = []
        for name, side in (("left", self.left), ("right", self.right)):
            fields = None if side.form is Form.TABLE else ("text",)
            inputs.append(Input(name, side.source, fields))
        inputs += self.statements.values()
        inputs += self.ontologies.values()
        if self.feedback is not None:
            inputs.append(Input(FEEDBACK, self.feedback, ("left", "right", "accepted")))
        return tuple(inputs)

    @property
    def statements(self) -> Mapping[str, Input]:
        """The inputs of the background whose rows are statements, by their names."""
        columns = ("source", "target", "relation", "confidence")
        return {
            name: Input(name, known, columns)
            for name, known in self._named_backgrounds
            if not isinstance(known, BackgroundOntology)
        }

    @property
    def ontologies(self) -> Mapping[str, Input]:
        """The inputs of the background that are ontologies, by their names."""
        return {
            name: Input(name, known.ontology, ("text",))
            for name, known in self._named_backgrounds
            if isinstance(known, BackgroundOntology)
        }

    @property
    def _named_backgrounds(
        self,
    ) -> Sequence[tuple[str, FileSource | ClassSource | BackgroundOntology]]:
        if self.background is None:
            return ()
        if not isinstance(self.background, tuple):
            return (("background", self.background),)
        return [(f"background {n}", known) for n, known in enumerate(self.background, 1)]
