"""What alembic runs for every command; `mediator.catalogue.revisions` gives it the connection."""

from collections.abc import Collection, Mapping
from typing import Any

from alembic import context
from alembic.runtime.migration import MigrationContext, MigrationInfo
from sqlalchemy import text
from sqlalchemy.schema import CreateSchema

SCHEMA = "portolan_catalogue"
FIRST_NOTED = "0002"
"""The revision with which the table of revisions came; the one before is known to all code."""

_NOTE = text(
    f"INSERT INTO {SCHEMA}.revisions (revision, additive) VALUES (:revision, :additive)"  # noqa: S608 - a constant
)
_FORGET = text(f"DELETE FROM {SCHEMA}.revisions WHERE revision = :revision")  # noqa: S608 - a constant


def _note(
    ctx: MigrationContext,
    step: MigrationInfo,
    heads: Collection[Any],  # noqa: ARG001 - alembic's shape
    run_args: Mapping[str, Any],  # noqa: ARG001 - alembic's shape
) -> None:
    """Leave word, for code that lacks the revision, whether it can do without."""
    if step.is_stamp:
        return
    for script in ctx.script.get_revisions(step.up_revision_ids) if ctx.script else ():
        if step.is_upgrade and script.revision >= FIRST_NOTED:
            told = _NOTE.bindparams(revision=script.revision, additive=script.module.additive)
            ctx.execute(told)
        elif not step.is_upgrade and script.revision > FIRST_NOTED:
            ctx.execute(_FORGET.bindparams(revision=script.revision))


def _run() -> None:
    connection = context.config.attributes.get("connection")
    context.configure(
        connection=connection,
        dialect_name="postgresql",
        literal_binds=connection is None,
        version_table_schema=SCHEMA,
        on_version_apply=_note,
    )
    with context.begin_transaction():
        context.execute(CreateSchema(SCHEMA, if_not_exists=True))
        context.run_migrations()


_run()
