"""The demo's agents, driven by hand against the real gateway: what they ask for, and how each end reads.

`drive` is no machinery: it calls each tool at once and lets a test answer for the people. How runs wait, are
recorded and go on is tested with real workers elsewhere.
"""

import uuid
from decimal import Decimal

import pytest

from examples import agents
from runs.agents import RunContext
from runs.exceptions import Denied, Expired, Rejected
from runs.tools import Outcome, ToolContext
from runs.values import digest


def drive(agent, *, people=None, **given):
    """Runs `agent` to its end. `people` maps a tool to an error, an answer, or a function of the call."""
    coroutine = agent.function(RunContext(uuid.UUID(int=1), agent.name, "1", "", {}), **given)
    answer = None
    try:
        while True:
            wanted = coroutine.send(answer)
            answer = [_outcome(call, (people or {}).get(call.tool.name)) for call in wanted.calls]
    except StopIteration as end:
        return end.value


def _outcome(call, said):
    try:
        return Outcome(value=_answer(call, said))
    except Exception as error:
        return Outcome(error=error)


def _answer(call, said):
    if isinstance(said, Exception):
        raise said
    arguments = call.tool.signature.read(call.arguments)
    if callable(said):
        arguments = said(arguments)
    elif said is not None:
        return said
    if call.perform:
        return call.perform()
    context = ToolContext(uuid.UUID(int=1), 0, digest(call.tool.name + call.arguments), 1)
    return call.tool.function(*[context] * call.tool.takes_context, **arguments)


def replies(gateway, ticket):
    return [each["text"] for each in gateway.get(f"/tickets/{ticket}")["replies"]]


def refunds(gateway):
    return [call["body"]["amount"] for call in gateway.calls("/charges/*/refunds")]


def test_refund_is_made_and_answered(gateway):
    outcome = drive(agents.refund_desk, ticket=5512)
    assert (outcome.refunded, outcome.amount) == (True, Decimal("240.00"))
    assert refunds(gateway) == ["240.00"]
    assert replies(gateway, 5512)[0].startswith("Dear Marta Lindqvist,\n\nWe have refunded 240.00 EUR.\n")


def test_refund_is_only_what_the_charge_allows(gateway):
    assert drive(agents.refund_desk, ticket=5514).amount == Decimal("80.00")


def test_refund_edited_by_a_person_is_told_as_it_was_made(gateway):
    people = {"issue_refund": lambda arguments: arguments | {"amount": Decimal("25.00")}}
    outcome = drive(agents.refund_desk, ticket=5512, people=people)
    assert outcome.said == "We have refunded 25.00 EUR. You asked for 240.00 EUR; this is what was agreed."


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Rejected("The parcel was delivered.", "ana"), "We cannot refund this: The parcel was delivered."),
        (Expired("2026-01-01T00:00:00Z"), "We could not decide on your refund in time."),
        (Denied("Too large", "over 10,000 EUR"), "A refund of this size is not made by this desk."),
    ],
)  # fmt: skip
def test_refund_that_was_not_allowed_is_answered_with_the_reason(gateway, error, said):
    outcome = drive(agents.refund_desk, ticket=5512, people={"issue_refund": error})
    assert (outcome.refunded, outcome.said) == (False, said)
    assert refunds(gateway) == []
    assert said in replies(gateway, 5512)[0]


def test_refund_of_a_disputed_charge_is_refused_outside(gateway):
    outcome = drive(agents.refund_desk, ticket=5515)
    assert outcome.said == "The payment could not be refunded: Charge ch_4404 is disputed."


def test_refund_made_before_makes_no_call(gateway):
    outcome = drive(agents.refund_desk, ticket=5516)
    assert outcome.refunded is False
    assert refunds(gateway) == []


def test_reply_that_was_not_allowed_does_not_hide_the_refund(gateway):
    outcome = drive(agents.refund_desk, ticket=5512, people={"reply": Rejected("not like this")})
    assert (outcome.refunded, replies(gateway, 5512)) == (True, [])
    assert outcome.said.endswith("(The customer was not told.)")


def test_mailing_goes_to_all_on_the_list(gateway):
    outcome = drive(agents.mailing, topic="Autumn lamps")
    assert (outcome.sent, outcome.accepted) == (True, 1200)
    [call] = gateway.calls("/mailings")
    assert call["body"]["subject"] == "Autumn lamps · news from Lumen & Oak"
    assert len(call["body"]["recipients"]) == 1200


def test_mailing_rejected_sends_nothing(gateway):
    outcome = drive(agents.mailing, topic="Autumn lamps", people={"send_mailing": Rejected("Not in August.")})
    assert (outcome.sent, outcome.said) == (False, "Not sent: Not in August.")
    assert gateway.calls("/mailings") == []


def choose(vendor):
    return {"abeyance.ask": agents.QuoteChoice(vendor=vendor, cost_centre="4200-studio")}


def test_purchase_takes_the_quote_a_person_chose(gateway):
    outcome = drive(agents.purchase, item="standing-desk", quantity=10, people=choose("kappa"))
    assert (outcome.bought, outcome.amount) == (True, Decimal("3872.80"))
    assert len(gateway.calls("/quotes")) == 3
    [call] = gateway.calls("/purchases")
    assert (call["body"]["vendor"], call["body"]["cost_centre"]) == ("kappa", "4200-studio")


def test_purchase_question_shows_every_offer(gateway):
    asked = []
    people = {"abeyance.ask": lambda arguments: asked.append(arguments["question"])}
    with pytest.raises(
        TypeError
    ):  # nobody answers here, so the question is called as a tool, which it is not
        drive(agents.purchase, item="standing-desk", quantity=10, people=people)
    assert [line.split(":")[0] for line in asked[0].splitlines()[1:]] == [
        "Norde AB (norde)", "Kappa Office GmbH (kappa)", "Tallis & Sons Ltd (tallis)",
    ]  # fmt: skip


def test_purchase_with_a_quote_that_expired_meanwhile(gateway):
    def expire(arguments):
        gateway.post(f"/quotes/{arguments['quote']}/expire")
        return arguments

    people = choose("norde") | {"buy": expire}
    outcome = drive(agents.purchase, item="standing-desk", quantity=10, people=people)
    assert outcome.bought is False
    assert outcome.said.startswith("Not bought: Quote q_1 expired at")


def test_purchase_of_an_unknown_item_says_so(gateway):
    outcome = drive(agents.purchase, item="yacht", quantity=1)
    assert outcome.said == "Not every vendor made a quote: There is no yacht among the items."


@pytest.mark.parametrize("step", ["abeyance.ask", "buy"])
def test_purchase_nobody_decided_in_time(gateway, step):
    people = choose("norde") | {step: Expired("2026-01-01T00:00:00Z")}
    outcome = drive(agents.purchase, item="standing-desk", quantity=10, people=people)
    assert outcome.bought is False
    assert outcome.said.endswith("in time.")
    assert gateway.calls("/purchases") == []
