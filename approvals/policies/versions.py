"""Every version of the rules that was in force, and the one that is.

Rules are edited as rows; `publish` freezes all of them into the next version and journals who did it. Only
versions are ever judged by, so that what the policy said at any time can be said again. The current one is
compiled once a process; `number` is the cheap question whether that is still the one.
"""

import json
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import Group
from django.db import transaction

from approvals.models import policy as rows
from approvals.policies import judgement, language
from approvals.policies.judgement import Reviewers, Ruling, Terms
from runs import actors, journal, values
from runs.actors import Actor
from runs.prepared import Rows

ONLY = 1
_STANDING = Rows(lambda: rows.Policy.objects.filter(pk=ONLY).order_by().values_list("number", "head"))
#: What rules can say since then; left out where they do not say it, so that older versions read the same.
SINCE = ("blind", "bulk_ok", "fixed_because")
OF_SEED = ("name", "tool", "expression", "outcome", "quorum", "decide_within", "consume_within", *SINCE)


@dataclass(frozen=True, slots=True)
class _Cached:
    """`head` tells two versions of one number apart: a rolled back one is never taken for its successor."""

    number: int
    head: bytes
    policy: judgement.Policy


_cached = _Cached(0, b"", judgement.Policy())


def version() -> int:
    """The number of the version in force; 0 where none was ever published. One query, by primary key."""
    return _standing()[0]


def _standing() -> tuple[int, bytes]:
    """Workers ask before every call."""
    found = _STANDING.first()
    return (found[0], bytes(found[1])) if found else (0, b"")


def current() -> judgement.Policy:
    """The version in force, compiled. One query, and two when it is new to this process."""
    global _cached
    number, head = _standing()
    cached = _cached
    if (cached.number, cached.head) != (number, head):
        cached = _cached = _Cached(number, head, at(number))
    return cached.policy


def at(number: int) -> judgement.Policy:
    """The version of that number, compiled. Raises PolicyVersion.DoesNotExist."""
    if number == 0:
        return judgement.Policy()
    return thaw(number, rows.PolicyVersion.objects.get(number=number).rules)


# -- Frozen and thawed ---------------------------------------------------------------


def freeze(rules: list[rows.Rule]) -> str:
    """The rules as canonical JSON, those that are switched off too."""
    return values.canonical([_frozen(rule) for rule in rules])


def _frozen(rule: rows.Rule) -> dict[str, Any]:
    group = rule.reviewers
    return {
        "id": rule.pk,
        "kind": rule.kind,
        "order": rule.order,
        "name": rule.name,
        "tool": rule.tool,
        "expression": rule.expression,
        "outcome": rule.outcome,
        "enabled": rule.enabled,
        "reviewers": {"id": group.pk, "name": group.name} if group else None,
        "quorum": rule.quorum,
        "decide_within": rule.decide_within,
        "consume_within": rule.consume_within,
        "undo_window": rule.undo_window,
        **{name: getattr(rule, name) for name in SINCE if getattr(rule, name)},
    }


def thaw(number: int, text: str) -> judgement.Policy:
    """A version's rules, compiled. One that is refused now stays, and fails whenever it is asked."""
    rules = [rule for rule in json.loads(text) if rule["enabled"]]
    return judgement.Policy(
        number=number,
        tier_rules=tuple(_ruling(rule) for rule in rules if rule["kind"] == "tier"),
        verdict_rules=tuple(_ruling(rule) for rule in rules if rule["kind"] == "verdict"),
    )


def _ruling(rule: dict[str, Any]) -> Ruling:
    reviewers = Reviewers(**rule["reviewers"]) if rule["reviewers"] else None
    clocks = (rule["quorum"], rule["decide_within"], rule["consume_within"], rule["undo_window"])
    terms = Terms(reviewers, *clocks, **{name: rule[name] for name in SINCE if name in rule})
    try:
        compiled = language.compile_rule(rule["expression"], kind=rule["kind"])
    except language.RuleRefused as refused:
        return Ruling(rule["name"], rule["tool"], rule["outcome"], terms, None, broken=refused.message)
    return Ruling(rule["name"], rule["tool"], rule["outcome"], terms, compiled)


# -- Published -----------------------------------------------------------------------


def refusals(*, kind: str, expression: str, outcome: str, reviewers: Group | None) -> dict[str, str]:
    """What is wrong with a rule as somebody filled it in, by field; empty when it can be saved."""
    found = {}
    allowed = rows.TIER_OUTCOMES if kind == "tier" else rows.VERDICT_OUTCOMES
    if kind not in rows.Kind.values:
        found["kind"] = "a rule is a tier rule or a verdict rule"
    elif outcome == "R4":
        found["outcome"] = "R4 needs a passkey over what is decided, which does not exist yet; use R3"
    elif outcome not in allowed:
        found["outcome"] = f"a {kind} rule says one of {', '.join(allowed)}"
    if reviewers is not None and outcome != "hold":
        found["reviewers"] = "reviewers decide what a rule holds; this one does not hold"
    try:
        language.compile_rule(expression, kind="tier" if kind == "tier" else "verdict")
    except language.RuleRefused as refused:
        found["expression"] = str(refused)
    return found


def publish(actor: Actor, *, why: str = "") -> rows.PolicyVersion:
    """Makes the rule rows as they are now the version in force. The same rules again make no new version.

    Call it in the transaction that changed the rows. Raises RuleRefused for a rule that does not compile.
    """
    with transaction.atomic():
        policy = _locked()
        rules = list(rows.Rule.objects.in_order())
        for rule in rules:
            language.compile_rule(rule.expression, kind="tier" if rule.kind == "tier" else "verdict")
        text = freeze(rules)
        standing = rows.PolicyVersion.objects.filter(number=policy.number).first()
        if standing and standing.rules == text:
            return standing
        return _next(policy, text, actor, why)


def _locked() -> rows.Policy:
    """Publishing goes one at a time: the rows are read after the lock, so none is published half."""
    rows.Policy.objects.get_or_create(pk=ONLY)
    return rows.Policy.objects.select_for_update().get(pk=ONLY)


def _next(policy: rows.Policy, text: str, actor: Actor, why: str) -> rows.PolicyVersion:
    number, digest = policy.number + 1, values.digest(text)
    made = rows.PolicyVersion.objects.create(
        number=number,
        rules=text,
        digest=digest,
        why=why,
        by_kind=actor.kind,
        by_id=actor.id,
        by_name=actor.name,
        door=actor.door,
    )
    rows.Policy.objects.filter(pk=policy.pk).update(number=number)
    journal.write(policy, actor, "policy_published", number=number, digest=digest, why=why)
    return made


def seed(rules: list[dict[str, Any]]) -> None:
    """The first version, where there is none yet; otherwise nothing: a rule that was removed stays removed.

    Each rule: pass, name, tool, expression, outcome and, where it holds, group (its name), quorum, clocks in
    seconds (decide_within, consume_within, undo_seconds). The groups are made where they are missing.
    """
    with transaction.atomic():
        if _locked().number:
            return
        for order, rule in enumerate(rules, start=1):
            rows.Rule.objects.update_or_create(
                kind=rule["pass"], name=rule["name"], defaults={"order": order * 10, **_seeded(rule)}
            )
        publish(Actor("system", "", actors.SYSTEM.name, "command"), why="the rules of the first start")


def supply(rules: list[dict[str, Any]], *, actor: Actor, why: str) -> bool:
    """Adds those of the rules, written as for `seed`, whose tool no rule names yet, and publishes. False: none was
    lacking. Nothing that stands is changed."""
    with transaction.atomic():
        _locked()
        standing = list(rows.Rule.objects.in_order())
        tools, names = {rule.tool for rule in standing}, {(rule.kind, rule.name) for rule in standing}
        lacking = [
            rule for rule in rules if rule["tool"] not in tools and (rule["pass"], rule["name"]) not in names
        ]
        last = max((rule.order for rule in standing), default=0)
        for place, rule in enumerate(lacking, start=1):
            rows.Rule.objects.create(kind=rule["pass"], order=last + place * 10, **_seeded(rule))
        if lacking:
            publish(actor, why=why)
    return bool(lacking)


def _seeded(rule: dict[str, Any]) -> dict[str, Any]:
    known = {key: rule[key] for key in OF_SEED if key in rule}
    group = rule.get("group")
    reviewers = Group.objects.get_or_create(name=group)[0] if group else None
    return {**known, "reviewers": reviewers, "undo_window": rule.get("undo_seconds", 0)}
