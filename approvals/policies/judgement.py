"""What the policy says of a call: how much care it needs, whether it may run, and who decides if not.

Two passes over one frozen version. Tier rules: the highest that matches. Verdict rules: the first that
matches decides; without one a pure tool may run and an effect is held. No error, absence or unknown value
leads to *allow*: a rule that cannot be evaluated counts as matching for the tier, and holds what would be
allowed. CEL itself settles `x || true` and `x && false` whatever x is, also where x cannot be known.
"""

import fnmatch
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self

from approvals.policies.evaluation import CallFacts, RuleFailed, Scope
from approvals.policies.language import Compiled

Verdict = Literal["allow", "hold", "deny"]
Tier = Literal["R0", "R1", "R2", "R3", "R4"]

VERDICTS: tuple[Verdict, ...] = ("allow", "hold", "deny")
TIERS: tuple[Tier, ...] = ("R0", "R1", "R2", "R3", "R4")
DEFAULT = "default"


@dataclass(frozen=True, slots=True, order=True)
class Reviewers:
    """A Django group; the name is as it was when the version was published."""

    id: int
    name: str


@dataclass(frozen=True, slots=True)
class Terms:
    """Who decides what is held, and in which time. Seconds."""

    reviewers: Reviewers | None = None
    quorum: int = 1
    decide_within: int = 3 * 86400
    consume_within: int = 86400
    undo_window: int = 0
    blind: bool = False
    bulk_ok: bool = False
    fixed_because: str = ""


@dataclass(frozen=True, slots=True)
class Ruling:
    """One rule of a version. `compiled` is None when it is not understood (any more); `broken` says why."""

    name: str
    tool: str
    outcome: str
    terms: Terms
    compiled: Compiled | None
    broken: str = ""

    def fits(self, tool: str) -> bool:
        return fnmatch.fnmatchcase(tool, self.tool)

    def matches(self, scope: Scope, *, tier: str = "") -> bool:
        """Raises RuleFailed."""
        if self.compiled is None:
            raise RuleFailed(self.broken)
        return scope.ask(self.compiled, tier=tier)


@dataclass(frozen=True, slots=True)
class Policy:
    """One published version, compiled. Number 0 is an installation without any rule."""

    number: int = 0
    tier_rules: tuple[Ruling, ...] = ()
    verdict_rules: tuple[Ruling, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """`rule` decided the verdict (or is 'default'), `why` is one sentence, `policy_version` is that rule's.

    `reviewers` is None where no rule names any. Clocks in seconds; those of an *allow* bind nobody.
    """

    verdict: Verdict
    tier: Tier
    rule: str
    why: str
    policy_version: int
    reviewers: Reviewers | None = None
    quorum: int = 1
    decide_within: int = 3 * 86400
    consume_within: int = 86400
    undo_window: int = 0
    blind: bool = False
    bulk_ok: bool = False
    fixed_because: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        reviewers = data["reviewers"]
        return cls(**{**data, "reviewers": Reviewers(**reviewers) if reviewers else None})


# -- Judging -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one rule said: `problem` is empty when it is true of the call."""

    rule: Ruling
    problem: str = ""

    @property
    def holds(self) -> bool:
        return bool(self.problem) or self.rule.outcome == "hold"


def judge(policy: Policy, call: CallFacts) -> Judgement:
    """What this version says of the call. Never raises for what rules or arguments contain."""
    with Scope(call) as scope:
        tier, doubt = _tier(policy, call, scope)
        answers = list(_until_decided(policy.verdict_rules, call, scope, tier))
    judgement = _decided(policy.number, call, tier, answers)
    return _careful(judgement, call, doubt)


def _answers(rules: tuple[Ruling, ...], call: CallFacts, scope: Scope, tier: str = "") -> Iterator[_Answer]:
    """The rules that are true of the call, and those that failed, in their order."""
    for rule in rules:
        if not rule.fits(call.tool_name):
            continue
        try:
            if rule.matches(scope, tier=tier):
                yield _Answer(rule)
        except RuleFailed as failed:
            yield _Answer(rule, f"The rule “{rule.name}” could not be evaluated: {failed}.")


def _tier(policy: Policy, call: CallFacts, scope: Scope) -> tuple[Tier, _Answer | None]:
    """The highest tier, and the first tier rule that failed. What is missing raises, it never lowers."""
    answers = list(_answers(policy.tier_rules, call, scope))
    failed = next((answer for answer in answers if answer.problem), None)
    tiers = [_known(answer.rule.outcome) for answer in answers]
    if not tiers or failed:
        tiers.append("R2" if call.tool_effect else "R0")
    if not call.tool_known or (call.tool_effect and not call.tool_has_consequence):
        tiers.append("R3")
    return max(tiers, key=TIERS.index), failed


def _known(outcome: str) -> Tier:
    return next((tier for tier in TIERS if tier == outcome), "R3")


def _until_decided(rules: tuple[Ruling, ...], call: CallFacts, scope: Scope, tier: Tier) -> Iterator[_Answer]:
    """Failed rules hold but do not end the pass: a later one may still deny."""
    for answer in _answers(rules, call, scope, tier):
        yield answer
        if not answer.problem:
            return


def _decided(number: int, call: CallFacts, tier: Tier, answers: list[_Answer]) -> Judgement:
    last = answers[-1] if answers and not answers[-1].problem else None
    failed = [answer for answer in answers if answer.problem]
    if last and last.rule.outcome == "deny":
        return _of(last, "deny", f"The rule “{last.rule.name}” does not allow it.", tier, number)
    if failed:
        holding = [answer for answer in answers if answer.holds]
        return _together(holding, failed[0].problem, tier, number)
    if last and last.rule.outcome == "allow":
        return _of(last, "allow", f"The rule “{last.rule.name}” allows it.", tier, number)
    if last:
        return _of(last, "hold", f"The rule “{last.rule.name}” holds it for a decision.", tier, number)
    if call.tool_effect:
        return Judgement("hold", tier, DEFAULT, "No rule allows what this tool changes.", number)
    return Judgement("allow", tier, DEFAULT, "No rule holds it, and it changes nothing.", number)


def _of(answer: _Answer, verdict: Verdict, why: str, tier: Tier, number: int) -> Judgement:
    terms = answer.rule.terms if answer.rule.outcome == "hold" else Terms()
    return Judgement(
        verdict=verdict,
        tier=tier,
        rule=answer.rule.name,
        why=why,
        policy_version=number,
        reviewers=terms.reviewers,
        quorum=terms.quorum,
        decide_within=terms.decide_within,
        consume_within=terms.consume_within,
        undo_window=terms.undo_window,
        blind=terms.blind,
        bulk_ok=terms.bulk_ok,
        fixed_because=terms.fixed_because,
    )


def _together(holding: list[_Answer], why: str, tier: Tier, number: int) -> Judgement:
    """Some rule failed: the first that names reviewers decides who is asked, the strictest terms hold."""
    lead = next((answer for answer in holding if answer.rule.terms.reviewers), holding[0])
    judgement = _of(lead, "hold", why, tier, number)
    for answer in holding:
        if answer.rule.outcome == "hold":
            judgement = _strictest_terms(judgement, _of(answer, "hold", why, tier, number))
    return judgement


def _careful(judgement: Judgement, call: CallFacts, doubt: _Answer | None) -> Judgement:
    """Where something is unknown, allow becomes hold. Held is at least R1, and undescribed at least R3."""
    if doubt and judgement.verdict != "deny":
        judgement = replace(judgement, why=doubt.problem)
        if judgement.verdict == "allow":
            judgement = replace(judgement, verdict="hold", rule=doubt.rule.name)
    if not call.tool_known and judgement.verdict == "allow":
        judgement = replace(judgement, verdict="hold", rule=DEFAULT, why="This tool is not registered here.")
    if judgement.verdict == "hold":
        least: Tier = "R1" if call.tool_has_consequence else "R3"
        judgement = replace(judgement, tier=max(judgement.tier, least, key=TIERS.index))
    return judgement


# -- The stricter of two -------------------------------------------------------------


def stricter(one: Judgement, other: Judgement) -> Judgement:
    """The least that satisfies both: deny > hold > allow, the higher tier, the larger quorum, the shorter
    clocks, the longer undo window. Rule, why, version and reviewers come from the stricter verdict, of two
    equal ones from the older version: who edits a policy cannot hand what is pending to others.
    `stricter(a, b) == a` says that b asks for nothing more.
    """
    lead = max(one, other, key=_precedence)
    merged = _strictest_terms(one, other)
    if (one.verdict == "allow") != (other.verdict == "allow"):
        merged = lead
    return replace(
        lead,
        tier=max(one.tier, other.tier, key=TIERS.index),
        quorum=max(one.quorum, other.quorum),
        undo_window=max(one.undo_window, other.undo_window),
        decide_within=merged.decide_within,
        consume_within=merged.consume_within,
        blind=one.blind or other.blind,
        bulk_ok=one.bulk_ok and other.bulk_ok,
        fixed_because=one.fixed_because or other.fixed_because,
    )


def _precedence(judgement: Judgement) -> tuple[object, ...]:
    """A total order over what is taken as a whole from one side; equal only where it makes no difference."""
    who = judgement.reviewers or Reviewers(0, "")
    rank = VERDICTS.index(judgement.verdict)
    return rank, -judgement.policy_version, judgement.rule, judgement.why, who


def _strictest_terms(one: Judgement, other: Judgement) -> Judgement:
    return replace(
        one,
        quorum=max(one.quorum, other.quorum),
        decide_within=min(one.decide_within, other.decide_within),
        consume_within=min(one.consume_within, other.consume_within),
        undo_window=max(one.undo_window, other.undo_window),
        blind=one.blind or other.blind,
        bulk_ok=one.bulk_ok and other.bulk_ok,
        fixed_because=one.fixed_because or other.fixed_because,
    )
