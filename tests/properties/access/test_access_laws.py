"""Laws of the access decision, on drawn principals, grants and targets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mediator.access.decision import AccessDecision, AccessTarget, decide
from mediator.access.keys import mint, split
from mediator.access.model import ANY, OPERATOR, Grant, Principal, Scope, parse_grant, parse_grants
from mediator.base.errors import Invalid
from mediator.schema.tree import Visibility

DATABASES = ("news", "club")
CLASSES = ("articles", "users")
TENANTS = ("acme", "globex", OPERATOR)

scopes = st.sampled_from(Scope)


@st.composite
def drawn_grants(draw: Any) -> Grant:
    database = draw(st.sampled_from((ANY, *DATABASES)))
    classes = (ANY,) if database == ANY else (ANY, *CLASSES)
    return Grant(draw(scopes), database, draw(st.sampled_from(classes)))


principals = st.builds(
    Principal, st.just("who"), st.sampled_from(TENANTS), st.frozensets(drawn_grants(), max_size=6)
)
targets = st.builds(
    AccessTarget,
    st.sampled_from(DATABASES),
    st.sampled_from((None, "acme", "globex")),
    st.sampled_from((None, *CLASSES)),
    st.sampled_from(get_args(Visibility)),
)


def is_allowed(principal: Principal | None, scope: Scope, target: AccessTarget) -> bool:
    return decide(principal, scope, target) is AccessDecision.ALLOWED


@given(principals, st.frozensets(drawn_grants()), scopes, targets)
def test_fewer_grants_never_allow_more(
    principal: Principal, subset: frozenset[Grant], scope: Scope, target: AccessTarget
) -> None:
    fewer = replace(principal, grants=principal.grants & subset)
    assert is_allowed(principal, scope, target) >= is_allowed(fewer, scope, target)


@given(principals, scopes, targets)
def test_a_principal_is_allowed_whatever_an_anonymous_request_is(
    principal: Principal, scope: Scope, target: AccessTarget
) -> None:
    assert is_allowed(principal, scope, target) >= is_allowed(None, scope, target)


@given(scopes, targets)
def test_an_anonymous_request_may_only_read_public_classes(
    scope: Scope, target: AccessTarget
) -> None:
    public = target.visibility == "public" and target.class_name is not None
    assert is_allowed(None, scope, target) is (scope is Scope.READ and public)


@given(principals, scopes, targets)
def test_a_tenant_sees_only_its_own_databases(
    principal: Principal, scope: Scope, target: AccessTarget
) -> None:
    private = replace(target, visibility="private")
    if not principal.operates and target.owner != principal.tenant:
        assert decide(principal, scope, private) is AccessDecision.HIDDEN


@given(principals, scopes, targets, st.sampled_from(("globex", None)))
def test_a_hidden_database_is_refused_like_an_absent_one(
    principal: Principal, scope: Scope, target: AccessTarget, owner: str | None
) -> None:
    """Otherwise the refusal would reveal that the database exists."""
    of_acme = replace(principal, tenant="acme")
    hidden = decide(of_acme, scope, replace(target, owner=owner, visibility="none"))
    absent = decide(of_acme, scope, AccessTarget(target.database))
    assert hidden is absent is AccessDecision.HIDDEN


@given(principals, scopes, targets)
def test_a_refusal_does_not_reveal_whether_a_class_exists(
    principal: Principal, scope: Scope, target: AccessTarget
) -> None:
    existing = replace(target, class_name="articles", visibility="none")
    absent = replace(target, class_name="nowhere", visibility="none")
    of_class = replace(
        principal, grants=frozenset(g for g in principal.grants if g.class_name == ANY)
    )
    assert decide(of_class, scope, existing) is decide(of_class, scope, absent)


@given(principals, scopes, targets)
def test_a_grant_for_a_class_never_reaches_the_whole_database(
    principal: Principal, scope: Scope, target: AccessTarget
) -> None:
    of_class = frozenset(g for g in principal.grants if g.class_name != ANY)
    database_target = replace(target, class_name=None)
    assert not is_allowed(replace(principal, grants=of_class), scope, database_target)


@given(principals, targets)
def test_write_includes_read_and_admin_includes_all(
    principal: Principal, target: AccessTarget
) -> None:
    assert is_allowed(principal, Scope.READ, target) >= is_allowed(principal, Scope.WRITE, target)
    for scope in Scope:
        assert is_allowed(principal, scope, target) >= is_allowed(principal, Scope.ADMIN, target)


@given(drawn_grants())
def test_a_grant_is_parsed_as_it_is_rendered(grant: Grant) -> None:
    assert parse_grant(str(grant)) == grant


@pytest.mark.parametrize(
    "text",
    ["", "root", "read:", "read:News", "read:news/", "read:/a", "read:news/a/b", "read news", "*"],
)
def test_a_malformed_grant_is_refused(text: str) -> None:
    assert parse_grant(text) is None
    with pytest.raises(Invalid) as refused:
        parse_grants(["read", text])
    assert [location.pointer for location in refused.value.locations] == ["/grants/1"]


def test_keys_differ_and_only_their_hash_is_stored() -> None:
    first, second = mint(), mint()
    assert first.text != second.text
    assert split(first.text) is not None
    assert first.text[-43:] not in first.digest


@given(st.text(max_size=100))
def test_a_text_that_is_not_a_key_is_not_split(text: str) -> None:
    assert split(text) is None
