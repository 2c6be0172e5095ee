"""Authorisation of one request: its permissions, decided before any store is called.

Routes that name a class are authorised in one place (`app.api.router`); routes that name several
authorise each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, NamedTuple

from mediator.access.cache import AccessCache
from mediator.access.decision import AccessDecision, AccessTarget, decide
from mediator.access.metered_plane import (
    MeteredPlane,
    Transact,
    hide_references,
    meter_transactions,
)
from mediator.access.metering import UNLIMITED, Meter, RunBound
from mediator.access.model import Principal, Scope
from mediator.access.owned_plane import OwnedPlane
from mediator.base.errors import Forbidden, MediatorError, NotFound, Unauthenticated
from mediator.changes.former_owners import changes_open_at, had_owners_until
from mediator.data_plane.port import DataPlane
from mediator.routing.model import EMPTY, ClassRoute, RoutingModel
from mediator.schema.tree import Visibility

__all__ = ["EVERYTHING", "Access", "ClassAccess", "Unrestricted", "refusal"]


class ClassAccess(NamedTuple):
    """The access of a request to one class.

    Attributes:
        owner: The subject to whose objects the request is confined; None: unconfined.
        names_systems: Whether responses may name the systems that the class is on.
    """

    owner: str | None
    names_systems: bool


_ALL_OF_CLASS: Final = ClassAccess(None, names_systems=True)
_PUBLIC_CLASS: Final = ClassAccess(None, names_systems=False)


def _allows(principal: Principal, scope: Scope, target: AccessTarget) -> bool:
    return decide(principal, scope, target) is AccessDecision.ALLOWED


class Access:
    """The permissions of a principal (None: the request has none), and public access."""

    __slots__ = ("_access_cache", "_model", "meter", "principal")

    def __init__(
        self,
        principal: Principal | None,
        access_cache: AccessCache,
        model: Callable[[], RoutingModel],
        meter: Meter,
    ) -> None:
        self.meter = meter
        self.principal = principal
        self._access_cache = access_cache
        self._model = model

    def require(
        self, scope: Scope, database: str, class_name: str | None = None, *, by_anybody: bool = True
    ) -> None:
        """Return if the request has a permission.

        Args:
            scope: The required scope.
            database: The database of the access.
            class_name: The class; None: the whole database.
            by_anybody: Whether a public class is open to requests without a principal.

        Raises:
            Unauthenticated: The request has no principal.
            Forbidden: The principal may not.
            NotFound: The database does not exist, or the principal may not know of it.
        """
        decision = self._decide(scope, database, class_name, by_anybody=by_anybody)
        if decision is not AccessDecision.ALLOWED:
            raise refusal(decision, scope)

    def require_some(self, scope: Scope, database: str) -> None:
        """Return if the request has a scope in at least one class; raises as `require`."""
        if not self._allowed_classes(scope, database):
            self.require(scope, database)

    def may_enter(self, database: str) -> bool:
        """Whether the request may read or write in at least one class."""
        return any(self._allowed_classes(scope, database) for scope in (Scope.READ, Scope.WRITE))

    @property
    def sender(self) -> tuple[str, ...]:
        """The namespace of the request's Idempotency-Keys, which separates senders."""
        principal = self.principal
        return () if principal is None else (principal.tenant, principal.subject)

    def readable(self, database: str) -> tuple[str, ...] | None:
        """Return the readable classes; None: all. Raises as `require` if none are."""
        allowed = self._allowed_classes(Scope.READ, database)
        names = tuple(name for name in allowed if self.owner_of(database, name) is None)
        if not names:
            self.require(Scope.READ, database)
        return names

    def may_read(self, database: str, class_name: str) -> bool:
        return self._may(Scope.READ, database, class_name)

    def owner_of(self, database: str, class_name: str) -> str | None:
        """Return the subject to whose objects a class is confined; None: unconfined."""
        route = self._find(database, class_name)
        if route is None or route.schema.owner_field is None:
            return None
        if self._may(Scope.ADMIN, database, class_name):
            return None
        self.require(Scope.READ, database, class_name)
        assert self.principal is not None  # no class with owners is public
        return self.principal.subject

    def require_all(self, database: str, class_name: str) -> None:
        """Return if the request may see all objects of a class; raises `Forbidden`."""
        if self.owner_of(database, class_name) is not None:
            detail = f"Objects of {class_name} have owners: this is for administrators of it."
            raise Forbidden(detail, extra={"scope": Scope.ADMIN.value})

    def may_administer(self, database: str, class_name: str) -> bool:
        return self._may(Scope.ADMIN, database, class_name)

    def may_read_all(self, database: str, class_name: str, *, by_anybody: bool = True) -> bool:
        """Whether all objects of a class may be shown, including former ones.

        `by_anybody` is as in `require`.
        """
        route = self._find(database, class_name)
        is_ownerless = route is not None and route.schema.owner_field is None
        # A removed class may have had owners: its remains are for administrators.
        scope = Scope.READ if is_ownerless else Scope.ADMIN
        return self._may(scope, database, class_name, by_anybody=by_anybody)

    def owned_until(self, database: str, class_name: str) -> datetime | None:
        """Return until when the request was confined to some objects of a class.

        None: it never was, or still is; `may_read_all` tells which.
        """
        route = self._model().databases.get(database)
        until = None if route is None else had_owners_until(route.owned_until, class_name)
        return None if until is None or self._may(Scope.ADMIN, database, class_name) else until

    def require_changes(self, database: str, class_name: str) -> None:
        """Return if all future changes to a class may be shown to the request.

        Raises:
            Forbidden: Its objects have owners, or had until a moment ago.
        """
        self.require_all(database, class_name)
        until = self.owned_until(database, class_name)
        if until is not None and datetime.now(UTC) <= (open_at := changes_open_at(until)):
            detail = (
                f"Objects of {class_name} had owners a moment ago: its changes are for"
                f" administrators of it. Try again after {open_at:%Y-%m-%dT%H:%M:%SZ}."
            )
            raise Forbidden(detail, extra={"scope": Scope.ADMIN.value})

    def require_all_since(self, database: str, class_name: str, moment: datetime) -> None:
        """Return if all objects of a class may be shown, in all states since a moment.

        Args:
            database: The database.
            class_name: The class.
            moment: By the clock of a replica.

        Raises:
            Forbidden: Its objects have owners, or had some time since; or the class is gone.
        """
        if not self._may_read_all_kept(database, class_name, moment):
            detail = (
                f"Objects of {class_name} have owners, or had since this was created, or the class"
                " no longer exists: this is for administrators of it."
            )
            raise Forbidden(detail, extra={"scope": Scope.ADMIN.value})

    def require_definition(self, database: str, class_name: str, created: datetime) -> None:
        """Return if a definition that depends on a class may be shown, and removed.

        That is a right on the whole database, which the route requires. A caller who had it while
        the class existed keeps it when the class is gone: no data of its objects is shown.

        Args:
            database: The database.
            class_name: The class on which it depends.
            created: The creation time, by the clock of a replica.

        Raises:
            Forbidden: Objects of the class have owners, or had some time since.
        """
        if self._may_read_all_kept(database, class_name, created):
            return
        is_gone = self._find(database, class_name) is None
        if not (is_gone and self._was_open_since(database, class_name, created)):
            detail = (
                f"Objects of {class_name} have owners, or had since this was created: it is for"
                " administrators of the class."
            )
            raise Forbidden(detail, extra={"scope": Scope.ADMIN.value})

    def _may_read_all_kept(self, database: str, class_name: str, moment: datetime) -> bool:
        may_read_all = self.may_read_all(database, class_name, by_anybody=False)
        return may_read_all and self._was_open_since(database, class_name, moment)

    def _was_open_since(self, database: str, class_name: str, moment: datetime) -> bool:
        """Whether objects of a class without owners certainly had none since a moment."""
        until = self.owned_until(database, class_name)
        return until is None or moment > changes_open_at(until)

    def may_read_all_since(self, database: str, class_name: str, moment: datetime) -> bool:
        """Whether all objects of a class may be shown, in all states since a moment."""
        until = self.owned_until(database, class_name)
        return self.may_read_all(database, class_name) and (until is None or moment > until)

    def enter_class(
        self, scope: Scope, database: str, class_name: str, route: ClassRoute
    ) -> ClassAccess:
        principal, schema = self.principal, route.schema
        visibility = schema.cache.visibility
        target = AccessTarget(database, self._access_cache.owner(database), class_name, visibility)
        decision = decide(principal, scope, target)
        if decision is not AccessDecision.ALLOWED:
            raise refusal(decision, scope)
        if principal is None:
            return _PUBLIC_CLASS  # no class with owners is public
        # Shared caches give a response about a public class to every client.
        names = visibility != "public" and _allows(principal, Scope.SCHEMA, target)
        if schema.owner_field is None or _allows(principal, Scope.ADMIN, target):
            return ClassAccess(None, names)
        if scope is not Scope.READ:
            # A writer of its own objects must see their owners.
            self.require(Scope.READ, database, class_name)
        return ClassAccess(principal.subject, names)

    def narrow(self, plane: DataPlane) -> DataPlane:
        if self.meter.bounds_operations:
            plane = MeteredPlane(plane, self.meter)
        return OwnedPlane(plane, self.owner_of, self.may_read_all)

    @contextmanager
    def submitting(self) -> Iterator[RunBound | None]:
        """Count a run being submitted; yields the bound of runs, None: unbounded."""
        limit = self.meter.limits.runs
        if limit is None:
            yield None
            return
        tenant = self._access_cache.current.tenants.get(self.meter.tenant)
        databases = tenant.databases if tenant else ()
        with self.meter.submitting() as pending:
            yield RunBound(databases, limit, pending)

    def transact(self, transact: Transact) -> Transact:
        transact = hide_references(transact, self.may_read_all)
        if not self.meter.bounds_operations:
            return transact
        return meter_transactions(transact, self.meter, self._model())

    def _allowed_classes(self, scope: Scope, database: str) -> list[str]:
        route = self._model().databases.get(database)
        classes = route.classes if route else ()
        return [name for name in classes if self._may(scope, database, name)]

    def _may(
        self, scope: Scope, database: str, class_name: str, *, by_anybody: bool = True
    ) -> bool:
        decision = self._decide(scope, database, class_name, by_anybody=by_anybody)
        return decision is AccessDecision.ALLOWED

    def _decide(
        self, scope: Scope, database: str, class_name: str | None, *, by_anybody: bool = True
    ) -> AccessDecision:
        route = self._find(database, class_name) if class_name is not None and by_anybody else None
        # Unknown classes are not public.
        visibility: Visibility = "none" if route is None else route.schema.cache.visibility
        target = AccessTarget(database, self._access_cache.owner(database), class_name, visibility)
        return decide(self.principal, scope, target)

    def _find(self, database: str, class_name: str) -> ClassRoute | None:
        route = self._model().databases.get(database)
        return None if route is None else route.classes.get(class_name)


class Unrestricted(Access):
    """May do everything: the installation authenticates no request."""

    __slots__ = ()

    def __init__(self) -> None:
        """Create it without owners and routing model."""
        self.meter, self.principal, self._model = UNLIMITED, None, lambda: EMPTY

    def _decide(self, *_: object, **__: object) -> AccessDecision:
        return AccessDecision.ALLOWED

    def readable(self, database: str) -> None:
        """Return None: all classes may be read."""

    def may_enter(self, database: str) -> bool:  # noqa: ARG002 - as that of `Access`
        return True

    def enter_class(self, *_: object) -> ClassAccess:
        return _ALL_OF_CLASS

    def narrow(self, plane: DataPlane) -> DataPlane:
        return plane


EVERYTHING: Final = Unrestricted()


def refusal(decision: AccessDecision, scope: Scope) -> MediatorError:
    match decision:
        case AccessDecision.UNAUTHENTICATED:
            return Unauthenticated("This needs a key or a token, in the Authorization field.")
        case AccessDecision.FORBIDDEN:
            detail = f"The scope {scope} is needed there, and is not granted."
            return Forbidden(detail, extra={"scope": scope.value})
        case AccessDecision.HIDDEN:
            return NotFound("There is no such database.")
        case AccessDecision.ALLOWED:
            raise AssertionError("it is allowed")
