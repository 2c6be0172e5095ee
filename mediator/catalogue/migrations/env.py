"""Alembic's environment for every command; `mediator.catalogue.revisions` sets its connection."""

from collections.abc import Collection, Mapping
from typing import Any

from alembic import context
from alembic.runtime.migration import MigrationContext, MigrationInfo
from sqlalchemy import text
from sqlalchemy.schema import CreateSchema

SCHEMA = "portolan_catalogue"

_RECORD = text(
    f"INSERT INTO {SCHEMA}.revisions (revision, additive) VALUES (:revision, :additive)"  # noqa: S608 - a constant
)
_FORGET = text(f"DELETE FROM {SCHEMA}.revisions WHERE revision = :revision")  # noqa: S608 - a constant


def _record(
    ctx: MigrationContext,
    step: MigrationInfo,
    heads: Collection[Any],  # noqa: ARG001 - alembic's shape
    run_args: Mapping[str, Any],  # noqa: ARG001 - alembic's shape
) -> None:
    """Record, for code that lacks the revision, whether it can run without it."""
    for script in ctx.script.get_revisions(step.up_revision_ids) if ctx.script else ():
        if step.is_upgrade:
            additive = script.module.additive
            ctx.execute(_RECORD.bindparams(revision=script.revision, additive=additive))
        else:
            ctx.execute(_FORGET.bindparams(revision=script.revision))


def _run() -> None:
    connection = context.config.attributes.get("connection")
    context.configure(
        connection=connection,
        dialect_name="postgresql",
        literal_binds=connection is None,
        version_table_schema=SCHEMA,
        on_version_apply=_record,
    )
    with context.begin_transaction():
        context.execute(CreateSchema(SCHEMA, if_not_exists=True))
        context.run_migrations()


_run()
