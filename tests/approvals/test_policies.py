"""Policies: what is refused when a rule is saved, what a rule says of a call, versions, and *stricter*."""

import gc
import json
import threading
from dataclasses import replace
from decimal import Decimal, localcontext
from itertools import permutations

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, transaction
from hypothesis import given
from hypothesis import strategies as st

from approvals import policies
from approvals.models import Policy, PolicyVersion, Rule
from approvals.policies import CallFacts, Judgement, Reviewers, RuleRefused, money
from approvals.policies.evaluation import RuleFailed, Scope
from examples.policies import SEED
from runs import values
from runs.actors import Actor
from runs.models import JournalEntry

EDITOR = Actor("person", "7", "Petra Policy", "admin")
CLERKS = {"id": 3, "name": "clerks"}


def a_call(**changes):
    usual = CallFacts(
        agent_name="refund-desk",
        agent_version="2",
        tool_name="issue_refund",
        tool_effect=True,
        tool_has_consequence=True,
        tool_known=True,
        args={"charge": "ch_1", "amount": "240.00"},
        labels={"team": "support"},
        submitter="key:42",
        on_behalf_of="maria@example.org",
    )
    return replace(usual, **changes)


def a_rule(kind, outcome, expression="true", **changes):
    return {
        "id": 1,
        "kind": kind,
        "order": 10,
        "name": f"{kind} {outcome}",
        "tool": "*",
        "expression": expression,
        "outcome": outcome,
        "enabled": True,
        "reviewers": None,
        "quorum": 1,
        "decide_within": 3600,
        "consume_within": 600,
        "undo_window": 0,
        **changes,
    }


def a_policy(*rules):
    return policies.thaw(4, values.canonical(list(rules)))


def verdict_of(*rules, **call):
    return policies.judge(a_policy(*rules), a_call(**call))


def result_of(expression, *, tier="R2", **call):
    """true, false, or the problem."""
    try:
        return Scope(a_call(**call)).ask(policies.compile_rule(expression), tier=tier)
    except RuleFailed as failed:
        return str(failed)


def test_judging_leaves_nothing_behind():
    """A worker judges each call, for months. CEL keeps our functions where no garbage collection finds them."""
    rules = a_policy(a_rule("verdict", "allow", "size(args) >= 0"))

    def scopes():
        gc.collect()
        return sum(isinstance(each, Scope) for each in gc.get_objects())

    before = scopes()
    for _ in range(5):
        assert policies.judge(rules, a_call()).verdict == "allow"
    assert scopes() == before


# -- Saving: what is refused, and where ----------------------------------------------


KNOWN = "agent.name, agent.version, tool.name, tool.effect, args, labels, submitter, on_behalf_of, tier"
CALLS = (
    "all, contains, endsWith, exists, exists_one, filter, has, int, matches, money, size, startsWith, string,"
    " use.count, use.sum"
)
NESTED = "stands inside another comprehension; only one deep is allowed"
MAP = "map cannot be used: it copies the list at every element; use all, exists, exists_one or filter"
MATCHES = "matches is too slow for every element; use startsWith, endsWith or contains"


@pytest.mark.parametrize(
    ("expression", "line", "column", "message"),
    [
        ("", 1, 1, "write a condition; true matches every call"),
        ("tool.effect &&", 1, 15, "something is missing at the end"),
        ("args.a ==\n  args.b &&& true", 2, 12, "'& ' is not expected here"),
        ("true true", 1, 6, "'true' is not expected here"),
        ("'é' == amount", 1, 8, f"amount is not known; there are {KNOWN}"),
        ("true ||\n   nobody", 2, 4, f"nobody is not known; there are {KNOWN}"),
        ("tool.nmae == 'x'", 1, 1, "tool.nmae is not known; there are tool.name and tool.effect"),
        ("agent == 'x'", 1, 1, "agent is not known; there are agent.name and agent.version"),
        ("use.max('t', '1h') > 1", 1, 1, "use.max is not known; there are use.count and use.sum"),
        ("boom() || true", 1, 1, f"boom() is not known; there are {CALLS}"),
        ("args.x.boom()", 1, 8, f"boom() is not known; there are {CALLS}"),
        ("args.count('t', '1h') > 1", 1, 6, f"count() is not known; there are {CALLS}"),
        ("args.xs.all(x, x.ys.exists(y, y))", 1, 21, f"exists {NESTED}"),
        ("[1].all(x, has(args.y) ||\n [args.ys.filter(y, y)] == [])", 2, 11, f"filter {NESTED}"),
        ("args.xs.all(x, true) && x", 1, 25, f"x is not known; there are {KNOWN}"),
        ("args.xs.all(args, true)", 1, 13, "args cannot be the element's name; take another"),
        ("args.xs.map(x, x) == []", 1, 9, MAP),
        ("double(args.x) > 20.0", 1, 1, 'double cannot be used: it rounds; compare decimals with money("…")'),
        ("timestamp(args.at) > timestamp('x')", 1, 1, "timestamp cannot be used: rules have no clock"),
        ("money(args.amount) > money(20.00)", 1, 28, 'write the amount in quotes: money("20.00")'),
        ("money(args.a) > money('20,00')", 1, 23, 'money() takes a decimal number as text, like "20.00"'),
        ("args.x.matches('(')", 1, 16, "this is not a regular expression"),
        ("args.x.matches(args.y)", 1, 16, "matches takes one pattern, written out in quotes"),
        ("args.xs.all(x, x.matches('a'))", 1, 18, MATCHES),
        (".args == 1", 1, 2, "a name cannot begin with a dot"),
        ("Money{amount: 1} == 1", 1, 1, "types cannot be built in a rule"),
        ("'\ud800' == args.x", 1, 2, "this character cannot be used"),
        ("(" * 100 + "true" + ")" * 100, 1, 97, "this is nested too deeply"),
    ],
)  # fmt: skip
def test_compile_refuses_with_the_position(expression, line, column, message):
    with pytest.raises(RuleRefused) as refused:
        policies.compile_rule(expression)
    assert (refused.value.message, refused.value.position) == (message, policies.Position(line, column))
    assert str(refused.value) == f"line {line}, column {column}: {message}"


def test_compile_at_the_limit_of_characters():
    at_limit = "true" + " " * 1996
    assert policies.compile_rule(at_limit).expression == at_limit
    with pytest.raises(RuleRefused) as refused:
        policies.compile_rule(at_limit + "\n")
    assert str(refused.value) == (
        "line 1, column 2001: a rule has at most 2,000 characters, this one has 2,001"
    )


def test_compile_lets_only_verdict_rules_read_the_tier():
    assert policies.compile_rule('tier >= "R2"').expression == 'tier >= "R2"'
    with pytest.raises(RuleRefused) as refused:
        policies.compile_rule('tier >= "R2"', kind="tier")
    assert refused.value.message == "tier can be read by verdict rules only; a tier rule is what decides it"


@pytest.mark.parametrize(
    "expression",
    [
        '\'boom() nobody\' != "it\\"s nobody" // nobody',
        "r'\\' != '''nobody\n'nobody' nobody'''",
        "has(args.charge) && args['charge'] == args.charge",
        "{'a': [1, 2, 0x1F, 1e3, .5, 1u]}.a[0] == 1",
        "args.charge.startsWith('ch_') && args.charge.matches('^ch_[0-9]$') ? true : false",
        "[1, 2].all(size, size > 0) && [3].exists(x, x == 3) && [1].filter(x, x > 0).size() == 1",
        "agent.name == 'refund-desk' && agent.version == '2' && tool.name == 'issue_refund' && tool.effect",
        "'team' in labels && submitter == 'key:42' && on_behalf_of.endsWith('@example.org') && tier == 'R2'",
        "int('12') == 12 && string(12) == '12'",
    ],
)
def test_compile_takes_what_is_known(expression):
    assert result_of(expression) is True


@given(st.text(max_size=60))
def test_compile_ends_in_a_rule_or_a_refusal(text):
    try:
        place = policies.compile_rule(text) and policies.Position(1, 1)
    except RuleRefused as refused:
        place = refused.position
    assert 1 <= place.line <= text.count("\n") + 1
    assert 1 <= place.column <= len(text) + 1


@given(st.lists(st.sampled_from("args x . ( ) all exists , && || true tool name boom use count '1h' [ ] ! == money".split()), max_size=12))  # fmt: skip # noqa: SIM905
def test_a_rule_that_compiles_knows_every_name_it_uses(words):
    try:
        rule = policies.compile_rule(" ".join(words))
    except RuleRefused:
        return
    allowed = {"args", "x", "all", "exists", "tool", "use", "name", "money", "count", "boom"}
    bound = set(rule.program.variables()) - {"args", "tool", "use"}
    assert bound <= allowed
    assert "boom" not in rule.program.functions()


# -- One rule and one call -------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("money('0.1') + money('0.2') == money('0.3')", True),
        ("money('20.00') == money('20')", True),
        ("money('20.000001') > money('20.00')", True),
        ("money('-0.01') < money('0')", True),
        ("money('1e3') == money('1000')", True),
        ("money(1000) == money('1000.00')", True),
        ("money('9999999999999.999999') > money('9999999999999.999998')", True),
        ("money('9') < money('10.00')", True),
        ("money(args.amount) > money('20.00') && money(args.amount) <= money('240.00')", True),
    ],
)
def test_money_is_exact(expression, expected):
    assert result_of(expression) is expected


@given(st.decimals(-(10**12), 10**12, places=6), st.decimals(-(10**12), 10**12, places=6))
def test_money_compares_and_adds_like_decimals(one, other):
    args = {"a": str(one), "b": str(other)}
    with localcontext(prec=50):
        assert result_of("money(args.a) < money(args.b)", args=args) is (one < other)
        assert result_of("money(args.a) == money(args.b)", args=args) is (one == other)
        total = {**args, "sum": str(one + other)}
        assert result_of("money(args.a) + money(args.b) == money(args.sum)", args=total) is True


TEXT = 'money() takes a decimal number as text, like "20.00"'


@pytest.mark.parametrize(
    ("amount", "problem"),
    [
        ("20.000000001", "money() takes at most 6 decimals"),
        ("20." + "0" * 38 + "1", "money() takes at most 6 decimals"),
        ("1" + "0" * 30, "money() takes amounts under 10,000,000,000,000"),
        (10**30, "money() takes amounts under 10,000,000,000,000"),
        ("10000000000000", "money() takes amounts under 10,000,000,000,000"),
        ("9e99", "money() takes amounts under 10,000,000,000,000"),
        ("NaN", TEXT),
        ("-Infinity", TEXT),
        ("", TEXT),
        (" 20", TEXT),
        ("20 EUR", TEXT),
        ("٢٠", TEXT),
        ("1_000", TEXT),
        (20.1, TEXT),
        (True, TEXT),
        (None, TEXT),
        (["20"], TEXT),
    ],
)
def test_money_refuses_what_it_would_have_to_round(amount, problem):
    assert result_of("money(args.a) < money('20.00')", args={"a": amount}) == problem
    assert result_of("money(args.a) < money('20.00') || true", args={"a": amount}) == problem


def test_money_takes_no_decimal_as_a_float():
    """CEL hands a registered function a float where Python had a Decimal."""
    assert result_of("money(args.a) == money('0.1')", args={"a": Decimal("0.1")}) == TEXT


def test_money_is_not_compared_with_plain_numbers():
    problem = "it compares or combines values of different types"
    assert result_of("money(args.amount) > 20") == problem
    assert result_of("money(args.amount) * 2 > money('20')") == problem


@given(st.text(max_size=30))
def test_money_reads_what_decimal_reads_or_nothing(text):
    amount, problem = money.read(text)
    assert (amount is None) is bool(problem)
    if amount is not None:
        assert Decimal(amount.days * 86400 + amount.seconds) + Decimal(amount.microseconds).scaleb(
            -6
        ) == Decimal(text)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("args.nothing == 1", "nothing is missing"),
        ("labels.nothing == 'x'", "nothing is missing"),
        ("args.charge", "its result is neither true nor false"),
        ("'true'", "its result is neither true nor false"),
        ("1", "its result is neither true nor false"),
        ("null", "its result is neither true nor false"),
        ("args", "its result is neither true nor false"),
        ("args.amount > 20", "it compares or combines values of different types"),
        ("1 / (size(args.charge) - 4) == 1", "a calculation has no result"),
        ("args.charge[0] == 'c'", "it compares or combines values of different types"),
        ("[1][5] == 1", "a list is shorter than it needs"),
        ("int(args.charge) == 1", "a function cannot work with what it was given"),
        ("money() == money('1')", "money() takes one amount"),
        ("use.count('issue_refund', '24h') > 3", "what was used before cannot be looked at here"),
        ("use.sum('t', 'amount', '24h') > money('5')", "what was used before cannot be looked at here"),
        ("use.count('t', 'yesterday') > 3", 'use.count() takes a tool and a window, like "24h"'),
        ("use.sum('t', '24h') > money('5')", 'use.sum() takes a tool, an argument and a window, like "24h"'),
    ],
)  # fmt: skip
def test_evaluation_fails_for_what_is_neither_true_nor_false(expression, problem):
    assert result_of(expression) == problem


def test_a_problem_repeats_no_value_of_the_call():
    secret = "sk_live_hush"
    args = {"charge": secret, "amount": secret, secret: 1}
    asked = [
        "int(args.charge) == 1",
        "money(args.charge) > money('1')",
        "args[args.charge + 'x'] == 1",
        "args.charge < 5",
    ]
    assert [problem for problem in (result_of(e, args=args) for e in asked) if secret in str(problem)] == []


def test_integers_of_any_size_stay_exact():
    big = {"a": 2**64 + 1, "b": 2**64 + 3, "c": 2**63 - 1, "d": -(2**63)}
    assert result_of("args.a == args.b", args=big) is False
    assert result_of("args.a == args.a && args.c == 9223372036854775807", args=big) is True
    assert result_of("args.a > 5", args=big) == "it compares or combines values of different types"
    assert result_of("-args.d > 5", args=big) == "it compares or combines values of different types"


class Ledger:
    def count(self, tool, seconds):
        return {("issue_refund", 86400): 5}[tool, seconds]

    def sum(self, tool, field, seconds):
        return {("issue_refund", "amount", 604800): "0.30"}[tool, field, seconds]


def test_use_is_looked_up_with_tool_and_window():
    ledger = Ledger()
    assert result_of("use.count('issue_refund', '24h') == 5", usage=ledger) is True
    assert result_of("use.sum('issue_refund', 'amount', '7d') == money('0.3')", usage=ledger) is True


def test_use_that_cannot_be_looked_up_is_a_problem_beside_true_as_well(capfd):
    problem = "what was used before could not be looked at"
    assert result_of("use.count('other', '1h') == 5 || true", usage=Ledger()) == problem


def test_a_long_list_is_gone_through_once_and_not_squared():
    mailing = {
        "recipients": [{"email": f"a{i}@example.org", "currency": "EUR"} for i in range(1200)],
        "currency": "EUR",
    }
    assert result_of("args.recipients.all(r, r.email.endsWith('@example.org'))", args=mailing) is True
    assert result_of("args.recipients.all(r, r.currency == args.currency)", args=mailing) is True
    too_long = "the arguments are too long for it"
    assert result_of("args.recipients.all(r, r in args.recipients)", args=mailing) == too_long
    assert result_of("size(args.recipients.filter(r, has(r.email))) > 5", args=mailing) == too_long
    few = {**mailing, "recipients": mailing["recipients"][:100]}
    assert result_of("args.recipients.all(r, r in args.recipients)", args=few) is True


def test_a_long_text_counts_by_its_length():
    args = {"xs": ["x"] * 1200, "text": "y" * 250_000}
    assert (
        result_of("args.xs.exists(x, args.text.contains(x))", args=args)
        == "the arguments are too long for it"
    )


# -- Judging ------------------------------------------------------------------------


def test_judge_without_a_rule_allows_pure_tools_and_holds_effects():
    held = policies.judge(policies.Policy(), a_call())
    assert (held.verdict, held.tier, held.rule, held.policy_version) == ("hold", "R2", "default", 0)
    assert held.why == "No rule allows what this tool changes."
    free = policies.judge(policies.Policy(), a_call(tool_effect=False))
    assert (free.verdict, free.tier, free.rule) == ("allow", "R0", "default")


def test_judge_takes_the_first_verdict_that_matches():
    first = a_rule("verdict", "allow", "money(args.amount) > money('500.00')", name="first")
    second = a_rule("verdict", "hold", name="second", reviewers=CLERKS, quorum=2, undo_window=5)
    third = a_rule("verdict", "deny", name="third")
    assert verdict_of(first, second, third) == Judgement(
        verdict="hold",
        tier="R2",
        rule="second",
        why="The rule “second” holds it for a decision.",
        policy_version=4,
        reviewers=Reviewers(3, "clerks"),
        quorum=2,
        decide_within=3600,
        consume_within=600,
        undo_window=5,
    )
    assert verdict_of(first, second, third, args={"amount": "500.01"}).verdict == "allow"
    assert verdict_of(third, second, first).why == "The rule “third” does not allow it."


def test_judge_takes_the_highest_tier_that_matches():
    tiers = [a_rule("tier", f"R{n}", name=f"t{n}") for n in (1, 3, 0)]
    assert verdict_of(*tiers).tier == "R3"
    assert verdict_of(tiers[0]).tier == "R1"


def test_judge_lets_verdict_rules_read_the_tier():
    rules = [a_rule("tier", "R1", "args.amount == '1'"), a_rule("tier", "R3", "args.amount == '3'")]
    allow = a_rule("verdict", "allow", 'tier < "R2"')
    assert verdict_of(*rules, allow, args={"amount": "1"}).verdict == "allow"
    assert verdict_of(*rules, allow, args={"amount": "3"}).verdict == "hold"


def test_judge_asks_only_rules_for_the_tool_that_are_switched_on():
    other = a_rule("verdict", "deny", tool="send_*")
    off = a_rule("verdict", "deny", enabled=False)
    allow = a_rule("verdict", "allow", tool="issue_?efund")
    assert verdict_of(other, off, allow).verdict == "allow"
    assert verdict_of(other, off, allow, tool_name="send_mailing").verdict == "deny"


def test_judge_holds_an_unknown_tool_whatever_a_rule_allows():
    allow = a_rule("verdict", "allow"), a_rule("tier", "R0")
    said = verdict_of(*allow, tool_known=False, tool_effect=False)
    assert (said.verdict, said.tier, said.rule) == ("hold", "R3", "default")
    assert said.why == "This tool is not registered here."
    assert verdict_of(a_rule("verdict", "deny"), tool_known=False).verdict == "deny"


def test_judge_puts_an_effect_without_a_consequence_at_r3():
    low = a_rule("tier", "R1")
    assert verdict_of(low, tool_has_consequence=False).tier == "R3"
    assert verdict_of(low, tool_has_consequence=True).tier == "R1"


def test_judge_never_holds_at_r0():
    zero, hold = a_rule("tier", "R0"), a_rule("verdict", "hold")
    assert verdict_of(zero, hold).tier == "R1"
    assert verdict_of(zero, hold, tool_effect=False, tool_has_consequence=False).tier == "R3"
    assert verdict_of(zero, a_rule("verdict", "allow")).tier == "R0"


def test_judge_holds_when_a_verdict_rule_fails():
    failing = a_rule("verdict", "allow", "args.missing == 1", name="small ones")
    said = verdict_of(failing, a_rule("verdict", "allow"))
    assert (said.verdict, said.rule) == ("hold", "small ones")
    assert said.why == "The rule “small ones” could not be evaluated: missing is missing."


def test_judge_still_denies_when_an_earlier_rule_fails():
    failing = a_rule("verdict", "allow", "args.missing == 1")
    assert verdict_of(failing, a_rule("verdict", "deny")).verdict == "deny"


def test_judge_asks_the_reviewers_of_the_failed_rule_with_the_strictest_terms():
    failing = a_rule(
        "verdict", "hold", "args.missing", name="failing", reviewers=CLERKS, quorum=1, undo_window=9
    )
    later = a_rule("verdict", "hold", reviewers={"id": 9, "name": "others"}, quorum=3, decide_within=60)
    said = verdict_of(failing, later)
    assert (said.rule, said.reviewers, said.quorum) == ("failing", Reviewers(3, "clerks"), 3)
    assert (said.decide_within, said.consume_within, said.undo_window) == (60, 600, 9)


def test_judge_raises_the_tier_and_holds_when_a_tier_rule_fails():
    """Missing input raises the tier (C-45): the failed rule counts as true."""
    tiers = a_rule("tier", "R3", "args.missing > 1", name="large"), a_rule("tier", "R0", name="rest")
    said = verdict_of(*tiers, a_rule("verdict", "allow"))
    assert (said.verdict, said.tier, said.rule) == ("hold", "R3", "large")
    assert said.why == "The rule “large” could not be evaluated: missing is missing."
    low = a_rule("tier", "R0", "args.missing > 1")
    assert verdict_of(low, a_rule("verdict", "hold")).tier == "R2"


def test_judge_holds_by_a_version_this_program_does_not_understand():
    later = a_rule("verdict", "allow", "some.future(thing)", name="from later")
    said = verdict_of(later)
    assert (said.verdict, said.rule) == ("hold", "from later")


def test_judge_holds_what_cannot_be_read():
    said = verdict_of(a_rule("verdict", "allow"), args={"a": "\ud800"})
    assert said.verdict == "hold"
    assert said.why == "The rule “verdict allow” could not be evaluated: the call cannot be read by rules."


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
FAILING = (
    "args.gone",
    "boom()",
    "args.amount",
    "'true'",
    "1",
    "null",
    "use.count('t', '1h') > 1",
    "boom() || true",
)


@given(
    expression=st.sampled_from([e for e in FAILING if "boom" not in e])
    | st.just("money(args.amount) == money('x1')"),
    broken=st.sampled_from(FAILING),
    args=st.dictionaries(st.sampled_from(["amount", "b"]), JSON, max_size=2),
    effect=st.booleans(),
)
def test_no_rule_that_fails_leads_to_allow(expression, broken, args, effect):
    args.pop("gone", None)
    if isinstance(args.get("amount"), bool):
        args["amount"] = "x"
    for rule in (a_rule("verdict", "allow", expression), a_rule("verdict", "allow", broken)):
        said = verdict_of(rule, a_rule("verdict", "allow", name="rest"), args=args, tool_effect=effect)
        assert said.verdict == "hold"
    said = verdict_of(a_rule("tier", "R0", broken), a_rule("verdict", "allow"), args=args, tool_effect=effect)
    assert said.verdict == "hold"


@given(
    args=JSON,
    expression=st.sampled_from(["args.a > 1", "money(args.a) > money('1')", "args.a.all(x, x)", "args == 1"]),
)
def test_judge_never_raises_and_allows_only_by_a_true_rule(args, expression):
    said = verdict_of(a_rule("verdict", "allow", expression), args=args)
    if said.verdict == "allow":
        assert result_of(expression, args=args) is True
    else:
        assert said.verdict == "hold"


def test_judgement_survives_json():
    said = verdict_of(a_rule("verdict", "hold", reviewers=CLERKS))
    assert Judgement.from_json(json.loads(json.dumps(said.as_json()))) == said
    plain = verdict_of(a_rule("verdict", "allow"))
    assert Judgement.from_json(json.loads(json.dumps(plain.as_json()))) == plain


# -- The stricter of two ----------------------------------------------------------------


JUDGEMENTS = st.builds(
    Judgement,
    verdict=st.sampled_from(["allow", "hold", "deny"]),
    tier=st.sampled_from(policies.TIERS),
    rule=st.sampled_from("ab"),
    why=st.sampled_from("xy"),
    policy_version=st.integers(0, 2),
    reviewers=st.none() | st.builds(Reviewers, st.integers(1, 2), st.sampled_from("pq")),
    quorum=st.integers(1, 3),
    decide_within=st.integers(1, 3),
    consume_within=st.integers(1, 3),
    undo_window=st.integers(0, 2),
)


@given(JUDGEMENTS, JUDGEMENTS, JUDGEMENTS)
def test_stricter_does_not_depend_on_order_or_number(a, b, c):
    assert {policies.stricter(policies.stricter(x, y), z) for x, y, z in permutations((a, b, c))} == {
        policies.stricter(a, policies.stricter(b, c))
    }
    assert policies.stricter(a, a) == a


@given(JUDGEMENTS, JUDGEMENTS)
def test_stricter_asks_for_all_that_either_asks(a, b):
    said = policies.stricter(a, b)
    order = ["allow", "hold", "deny"]
    for one in (a, b):
        assert order.index(said.verdict) >= order.index(one.verdict)
        assert said.tier >= one.tier
        assert said.quorum >= one.quorum
        assert said.undo_window >= one.undo_window
        if one.verdict != "allow":
            assert said.decide_within <= one.decide_within
            assert said.consume_within <= one.consume_within


def test_stricter_keeps_reviewers_of_the_older_version():
    """Who edits a policy cannot hand what is pending to others (C-20)."""
    asked = Judgement("hold", "R2", "old", "why", 4, Reviewers(3, "clerks"), quorum=2, undo_window=60)
    loosened = Judgement("hold", "R1", "new", "why", 5, Reviewers(9, "friends"), quorum=1, decide_within=99)
    assert policies.stricter(asked, loosened) == replace(asked, decide_within=99)
    assert policies.stricter(asked, replace(loosened, decide_within=asked.decide_within)) == asked


def test_stricter_leaves_an_allow_out_of_the_clocks():
    hold = Judgement("hold", "R2", "h", "why", 5, decide_within=7 * 86400, consume_within=7 * 86400)
    assert policies.stricter(Judgement("allow", "R1", "a", "why", 4), hold) == hold


# -- Saving rows --------------------------------------------------------------------------


def test_refusals_name_the_field():
    group = Group(pk=3, name="clerks")
    usual = {"kind": "verdict", "expression": "true", "outcome": "hold", "reviewers": group}
    assert policies.refusals(**usual) == {}
    assert policies.refusals(**{**usual, "expression": "tru", "outcome": "allow"}) == {
        "expression": f"line 1, column 1: tru is not known; there are {KNOWN}",
        "reviewers": "reviewers decide what a rule holds; this one does not hold",
    }
    assert policies.refusals(**{**usual, "kind": "tier", "outcome": "R4", "reviewers": None}) == {
        "outcome": "R4 needs a passkey over what is decided, which does not exist yet; use R3"
    }
    assert policies.refusals(**{**usual, "kind": "tier", "reviewers": None}) == {
        "outcome": "a tier rule says one of R0, R1, R2, R3"
    }


def test_a_rule_has_no_field_by_which_expiry_could_approve():
    """C-10: all that a rule can say."""
    assert {field.name for field in Rule._meta.get_fields()} == {
        *("id", "kind", "order", "name", "tool", "expression", "outcome", "enabled"),
        *("reviewers", "quorum", "decide_within", "consume_within", "undo_window"),
        *("blind", "bulk_ok", "fixed_because"),
    }


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("fields", "constraint"),
    [
        ({"kind": "tier", "outcome": "allow"}, "rule_outcome_fits_kind"),
        ({"kind": "tier", "outcome": "R4"}, "rule_outcome_fits_kind"),
        ({"kind": "verdict", "outcome": "R1"}, "rule_outcome_fits_kind"),
        ({"kind": "other", "outcome": "allow"}, "rule_outcome_fits_kind"),
        ({"kind": "verdict", "outcome": "hold", "quorum": 0}, "rule_quorum_at_least_one"),
        ({"kind": "verdict", "outcome": "hold", "decide_within": 0}, "rule_clocks_in_range"),
        ({"kind": "verdict", "outcome": "hold", "undo_window": 86401}, "rule_clocks_in_range"),
    ],
)
def test_the_database_refuses_a_rule_that_says_nothing(fields, constraint):
    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        Rule.objects.create(name="x", **fields)
    assert refused.value.__cause__.diag.constraint_name == constraint


@pytest.mark.django_db
def test_the_database_keeps_names_and_reviewers_apart():
    group = Group.objects.create(name="clerks")
    Rule.objects.create(name="x", kind="verdict", outcome="hold", reviewers=group)
    Rule.objects.create(name="x", kind="tier", outcome="R1")
    with pytest.raises(IntegrityError) as twice, transaction.atomic():
        Rule.objects.create(name="x", kind="verdict", outcome="deny")
    with pytest.raises(IntegrityError) as idle, transaction.atomic():
        Rule.objects.create(name="y", kind="verdict", outcome="deny", reviewers=group)
    names = [refused.value.__cause__.diag.constraint_name for refused in (twice, idle)]
    assert names == ["rule_name_once_a_kind", "rule_reviewers_only_where_held"]


# -- Versions -----------------------------------------------------------------------------


@pytest.mark.django_db
def test_publish_freezes_the_rules_and_journals_who_did_it():
    group = Group.objects.create(name="clerks")
    rule = Rule.objects.create(name="all", kind="verdict", outcome="hold", reviewers=group)
    made = policies.publish(EDITOR, why="we begin")
    assert (made.number, made.by_kind, made.by_id, made.by_name, made.door, made.why) == (
        *(1, "person", "7", "Petra Policy", "admin", "we begin"),
    )
    assert json.loads(made.rules)[0]["reviewers"] == {"id": group.pk, "name": "clerks"}
    entry = JournalEntry.objects.get(stream="policy:1")
    assert (entry.seq, entry.verb, entry.actor_name) == (1, "policy_published", "Petra Policy")
    assert json.loads(entry.detail) == {"number": 1, "digest": made.digest, "why": "we begin"}

    Rule.objects.filter(pk=rule.pk).update(outcome="allow", reviewers=None)
    Group.objects.filter(pk=group.pk).update(name="renamed")
    assert policies.judge(policies.current(), a_call()).reviewers == Reviewers(group.pk, "clerks")
    assert policies.publish(EDITOR).number == 2
    assert [policies.judge(policies.at(n), a_call()).verdict for n in (0, 1, 2)] == ["hold", "hold", "allow"]


@pytest.mark.django_db
def test_publish_twice_makes_one_version():
    Rule.objects.create(name="all", kind="verdict", outcome="hold")
    assert policies.publish(EDITOR) == policies.publish(EDITOR)
    assert (policies.version(), PolicyVersion.objects.count(), JournalEntry.objects.count()) == (1, 1, 1)


@pytest.mark.django_db
def test_publish_refuses_a_rule_that_does_not_compile():
    Rule.objects.create(name="all", kind="verdict", outcome="hold", expression="boom() || true")
    with pytest.raises(RuleRefused):
        policies.publish(EDITOR)
    assert (policies.version(), PolicyVersion.objects.count()) == (0, 0)


@pytest.mark.django_db(transaction=True)
def test_publish_by_two_editors_at_once_loses_neither_rule():
    policies.publish(EDITOR)
    start = threading.Barrier(2)

    def edit(name):
        with transaction.atomic():
            Rule.objects.create(name=name, kind="verdict", outcome="hold")
            start.wait(5)
            policies.publish(EDITOR, why=name)
        connection.close()

    threads = [threading.Thread(target=edit, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [version.number for version in PolicyVersion.objects.order_by("number")] == [1, 2, 3]
    assert {rule.name for rule in policies.current().verdict_rules} == {"one", "two"}


@pytest.mark.django_db
@pytest.mark.parametrize("rules", [1, 3])
def test_current_asks_once_for_what_it_has_compiled(rules, django_assert_num_queries):
    for number in range(rules):
        Rule.objects.create(name=str(number), kind="verdict", outcome="hold")
    policies.publish(EDITOR)
    with django_assert_num_queries(2):
        first = policies.current()
    with django_assert_num_queries(1):
        assert policies.current() is first
    with django_assert_num_queries(1):
        assert policies.version() == 1
    assert len(first.verdict_rules) == rules


@pytest.mark.django_db
def test_current_does_not_take_a_rolled_back_version_for_its_successor():
    with transaction.atomic():
        Rule.objects.create(name="rolled back", kind="verdict", outcome="allow")
        policies.publish(EDITOR)
        assert policies.judge(policies.current(), a_call()).verdict == "allow"
        transaction.set_rollback(True)
    assert policies.judge(policies.current(), a_call()).policy_version == 0
    Rule.objects.create(name="kept", kind="verdict", outcome="deny")
    policies.publish(EDITOR)
    assert policies.judge(policies.current(), a_call()).rule == "kept"


@pytest.mark.django_db
def test_there_is_one_policy():
    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        Policy.objects.create(pk=2)
    assert refused.value.__cause__.diag.constraint_name == "policy_is_one_row"


@pytest.mark.django_db
def test_seed_makes_the_first_version_and_never_another():
    policies.seed(SEED)
    assert policies.version() == 1
    assert [rule.name for rule in policies.current().tier_rules] == [
        rule["name"] for rule in SEED if rule["pass"] == "tier"
    ]
    Rule.objects.filter(name="Customers are answered").delete()
    policies.publish(EDITOR)
    policies.seed(SEED)
    assert (policies.version(), Rule.objects.count()) == (2, len(SEED) - 1)


@pytest.mark.django_db
def test_seed_holds_large_refunds_for_their_team():
    policies.seed(SEED)
    said = policies.judge(policies.current(), a_call(args={"charge": "ch_1", "amount": "1000.01"}))
    assert (said.verdict, said.tier, said.reviewers.name) == ("hold", "R3", "refunds")
    small = policies.judge(policies.current(), a_call(args={"charge": "ch_1", "amount": "20.00"}))
    assert (small.verdict, small.tier) == ("allow", "R1")
