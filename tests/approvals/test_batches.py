"""Several requests at once: each goes its own way, and what may not be approved together is not."""

import re
from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from approvals import batches
from approvals.models import Decision, Delegation, Request, Snooze
from runs import clock
from tests.approvals import desk


@pytest.fixture
def small(people: SimpleNamespace) -> SimpleNamespace:
    """What is small is R1, and may be approved together."""
    desk.change_rule("small", outcome="R1")
    desk.change_rule("desk", bulk_ok=True)
    return people


def wires(*amounts: str) -> list[Request]:
    return [desk.opened("approvals-wirer", amount=amount) for amount in amounts]


def asked(site: Client, verb: str, *items: Request) -> Any:
    return site.get("/inbox/together", {"act": verb, "ref": [item.ref for item in items]})


def hidden(answer: Any) -> dict[str, list[str]]:
    """What the page's form would send, as it stands."""
    fields: dict[str, list[str]] = {}
    body = answer.content.decode()
    for tag in re.findall(
        r"<input[^>]*>", body[body.index('<form method="post" action="/inbox/together/do"') :]
    ):
        told = dict(re.findall(r'([\w-]+)="([^"]*)"', tag))
        if told.get("type") == "hidden" or " checked" in tag:
            fields.setdefault(told["name"], []).append(told.get("value", ""))
    fields.pop("csrfmiddlewaretoken", None)
    return fields


def sent(site: Client, fields: dict[str, list[str]], **more: Any) -> Any:
    return site.post("/inbox/together/do", {**fields, **more})


def summed(answer: Any) -> str:
    assert answer.status_code == 200, answer.content.decode()[:2000]
    return str(answer.context["summed"])


def said(answer: Any) -> list[str]:
    assert answer.status_code == 422
    return list(answer.context["problems"]) + [text for _, text in answer.context["errors"]]


def states() -> list[str]:
    return sorted(Request.objects.values_list("state", flat=True))


# -- Approving -----------------------------------------------------------------------------------------------


def test_alike_small_ones_are_approved_with_one_record_each(
    small: SimpleNamespace, site: Client, whole: None
) -> None:
    items = wires("12.00", "9.50", "30.00")
    page = asked(site, "approve", *items)
    assert page.context["table"].totals == (
        "amount: 51.50 in all, 30.00 at most",
        "to: 1 different, ACME 3 times",
    )
    fields = hidden(page)
    fields["ref"] = [item.ref for item in items]
    assert summed(sent(site, fields)) == "3 approved"
    assert states() == ["in_force"] * 3
    made = Decision.objects.all()
    assert len({one.digest for one in made}) == len({one.nonce for one in made}) == 3
    assert {one.door for one in made} == {"bulk"}


def test_sent_twice_says_the_same_and_writes_nothing(small: SimpleNamespace, site: Client) -> None:
    fields = hidden(asked(site, "approve", *wires("12.00", "9.50")))
    assert [summed(sent(site, fields)) for _ in range(2)] == ["2 approved"] * 2
    assert Decision.objects.count() == 2


def test_each_has_its_own_outcome(small: SimpleNamespace, site: Client, whole: None) -> None:
    """Changed, decided, expired and withdrawn meanwhile: the others go through."""
    items = [desk.opened(amount=amount) for amount in ("1.00", "1.10", "1.20", "1.30", "1.40")]
    fields = hidden(asked(site, "approve", *items))
    desk.look(items[0], given=Decimal("5.00"))
    desk.decide(items[1], small.ben, "reject")
    Request.objects.filter(pk=items[2].pk).update(decide_by=clock.now() - timedelta(seconds=1))
    assert summed(sent(site, fields)) == "2 approved, 1 changed, 1 decided by Ben, 1 expired"
    assert [desk.fresh(item).state for item in items] == ["open", "rejected", "open", "in_force", "in_force"]


def test_unusual_one_is_ticked_by_hand(small: SimpleNamespace, site: Client) -> None:
    items = wires("10.00", "11.00", "9.00", "240.00")
    page = asked(site, "approve", *items)
    odd = [line for line in page.context["table"].lines if line.unusual]
    assert [(line.ref, line.unusual) for line in odd] == [
        (items[3].ref, "240.00 is more than twice what is usual among these")
    ]
    assert hidden(page)["ref"] == [item.ref for item in items[:3]]
    assert summed(sent(site, hidden(page))) == "3 approved"
    assert desk.fresh(items[3]).state == "open"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda p: desk.change_rule("desk", bulk_ok=False), "The rule that holds them does not allow approving together."),
        (lambda p: desk.change_rule("small", outcome="R2"), "Only R1 is approved together."),
    ],
)  # fmt: skip
def test_approving_together_is_the_rules_to_allow(
    small: SimpleNamespace, site: Client, change: Any, why: str
) -> None:
    change(small)
    assert said(asked(site, "approve", *wires("12.00", "9.50"))) == [why]


def test_what_is_unlike_is_not_approved_together(small: SimpleNamespace, site: Client) -> None:
    first, drifted = wires("12.00")[0], desk.opened(amount="5.00")
    desk.look(drifted, given=Decimal("5.00"))
    question, large = desk.opened("approvals-asker"), desk.opened("approvals-wirer", amount="2000.00")
    assert said(asked(site, "approve", first, large)) == ["Only R1 is approved together."]
    assert said(asked(site, "approve", drifted)) == [
        "Some of these have changed or are flagged: open them one by one."
    ]
    assert "Questions are answered one by one." in said(asked(site, "approve", question))
    assert "Choose items of one type." in said(asked(site, "approve", first, drifted))
    assert said(asked(site, "approve")) == ["Nothing is ticked that is still open and assigned to you."]


def test_other_version_of_the_rules_is_unlike(small: SimpleNamespace, site: Client) -> None:
    [before] = wires("12.00")
    desk.change_rule("desk", decide_within=7200)
    [after] = wires("9.50")
    assert said(asked(site, "approve", before, after)) == [
        "They are not of one version of the tool and one rule."
    ]


def test_larger_one_sent_beside_small_ones_is_refused_with_all(small: SimpleNamespace, site: Client) -> None:
    """The form says R1; what is posted need not be what it showed."""
    fields = hidden(asked(site, "approve", *wires("12.00")))
    large = desk.opened("approvals-wirer", amount="2000.00")
    fields["ref"].append(large.ref)
    fields[f"digest-{large.ref}"] = [large.revision.digest]
    assert said(sent(site, fields)) == ["Only R1 is approved together."]
    assert states() == ["open", "open"]


def test_other_tool_sent_beside_is_refused_with_all(small: SimpleNamespace, site: Client) -> None:
    fields = hidden(asked(site, "approve", *wires("12.00")))
    other = desk.opened(amount="5.00")
    fields["ref"].append(other.ref)
    fields[f"digest-{other.ref}"] = [other.revision.digest]
    assert said(sent(site, fields))[0] == "Choose items of one type."
    assert states() == ["open", "open"]


def test_without_its_digest_an_item_is_changed(small: SimpleNamespace, site: Client) -> None:
    first, other = wires("12.00", "9.50")
    fields = hidden(asked(site, "approve", first))
    fields["ref"].append(other.ref)
    assert summed(sent(site, fields)) == "1 approved, 1 changed"
    assert desk.fresh(other).state == "open"


def test_more_than_twenty_are_not_approved_together(
    small: SimpleNamespace, site: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MOST_APPROVED", 2)
    items = wires("12.00", "9.50", "8.00")
    assert said(asked(site, "approve", *items)) == ["At most 2 are approved together."]
    fields = hidden(asked(site, "approve", *items[:2]))
    fields["ref"].append(items[2].ref)
    assert said(sent(site, fields)) == ["At most 2 are approved together."]
    assert states() == ["open"] * 3


def test_foreign_and_unknown_refs_are_one_and_the_same(small: SimpleNamespace, site: Client) -> None:
    mine, foreign = wires("12.00", "6000.00")
    page = site.get("/inbox/together", {"act": "reject", "ref": [mine.ref, foreign.ref, "0000000000"]})
    assert (page.context["gone"], len(page.context["table"].lines)) == (2, 1)
    assert foreign.ref not in page.content.decode()
    fields = hidden(page)
    fields["ref"] += [foreign.ref, "0000000000"]
    fields[f"digest-{foreign.ref}"] = [foreign.revision.digest]
    assert summed(sent(site, fields, note="no")) == "1 rejected, 2 not yours"
    assert desk.fresh(foreign).state == "open"


def test_own_requests_are_not_approved_together(small: SimpleNamespace, site: Client) -> None:
    own = desk.opened("approvals-wirer", amount="5.00", owner=small.ana)
    assert said(asked(site, "approve", own)) == ["Some of these are not yours to decide."]
    assert said(
        sent(site, {"act": ["approve"], "ref": [own.ref], f"digest-{own.ref}": [own.revision.digest]})
    ) == ["Some of these are not yours to decide."]
    assert desk.fresh(own).state == "open"


def test_facts_are_looked_at_within_a_minute_or_looked_at_first(small: SimpleNamespace, site: Client) -> None:
    items = [desk.opened(amount=amount) for amount in ("1.00", "2.00")]
    fields = hidden(asked(site, "approve", *items))
    Request.objects.filter(pk=items[0].pk).update(looked_at=clock.now() - timedelta(seconds=61))
    page = sent(site, fields)
    assert (page.status_code, page.context["looking"]) == (200, 1)
    assert desk.fresh(items[0]).look_wanted_at is not None
    assert states() == ["open", "open"]
    desk.look(items[0])
    assert summed(sent(site, fields)) == "2 approved"


# -- The other verbs -------------------------------------------------------------------------------------------


def test_rejected_with_one_reason_and_one_record_each(
    people: SimpleNamespace, site: Client, whole: None
) -> None:
    items = wires("12.00", "2000.00")
    fields = hidden(asked(site, "reject", *items))
    assert said(sent(site, fields)) == ["Say why: it is kept with each."]
    assert summed(sent(site, fields, reason="duplicate", note="see INV-1")) == "2 rejected"
    assert [one.reason for one in Decision.objects.all()] == ["duplicate: see INV-1"] * 2
    assert summed(sent(site, fields, reason="duplicate", note="see INV-1")) == "2 rejected"
    assert Decision.objects.count() == 2


def test_snoozed_together_each_as_far_as_it_may(people: SimpleNamespace, site: Client) -> None:
    items = wires("12.00", "13.00")
    Request.objects.filter(pk=items[0].pk).update(decide_by=clock.now() + timedelta(hours=9))
    fields = hidden(asked(site, "snooze", *items))
    assert said(sent(site, fields)) == ["Choose for how long."]
    assert summed(sent(site, fields, hours="4")) == "1 put off, 1 not done"
    assert list(Snooze.objects.values_list("request__ref", flat=True)) == [items[0].ref]


def test_passed_on_together(people: SimpleNamespace, site: Client) -> None:
    items = wires("12.00", "13.00")
    page = asked(site, "delegate", *items)
    assert [one.username for one in page.context["people"]] == ["ben"]
    fields = hidden(page)
    assert said(sent(site, fields, note="yours")) == ["Choose who should look at them."]
    assert said(sent(site, fields, to=people.ben.pk)) == ["Say why: it is kept with each."]
    assert summed(sent(site, fields, to=people.dee.pk, note="yours")) == "2 not done"
    assert summed(sent(site, fields, to=people.ben.pk, note="yours")) == "2 passed on"
    assert Delegation.objects.filter(to_id=str(people.ben.pk)).count() == 2


def test_nothing_ticked_on_the_page_says_so(people: SimpleNamespace, site: Client) -> None:
    fields = hidden(asked(site, "reject", *wires("12.00")))
    del fields["ref"]
    assert said(sent(site, fields, note="no")) == ["Tick at least one."]


@pytest.mark.parametrize("verb", ["", "respond", "edit"])
def test_other_verbs_lead_back(people: SimpleNamespace, site: Client, verb: str) -> None:
    [item] = wires("12.00")
    assert asked(site, verb, item).status_code == 303
    assert sent(site, {"act": [verb], "ref": [item.ref]}).status_code == 303
    assert site.get("/inbox/together/do").status_code == 303


def test_who_reviews_nothing_can_do_nothing_together(people: SimpleNamespace) -> None:
    [item] = wires("12.00")
    cyd = Client()
    cyd.force_login(User.objects.get(username="cyd"))
    assert said(asked(cyd, "reject", item)) == ["Nothing is ticked that is still open and assigned to you."]


@pytest.mark.parametrize("many", [1, 3])
def test_page_for_several_costs_as_much_as_for_one(
    small: SimpleNamespace, site: Client, many: int, django_assert_num_queries: Any
) -> None:
    items = wires(*["12.00", "13.00", "14.00"][:many])
    asked(site, "reject", *items)
    with django_assert_num_queries(7):
        asked(site, "reject", *items)


@pytest.mark.parametrize("verb", ["approve", "reject", "delegate", "snooze"])
@pytest.mark.parametrize("ref", ["\x00", "7Q2F\x00", "‮", "x" * 100_000, ""])
def test_ref_that_can_be_none_is_as_if_it_was_not_sent(
    small: SimpleNamespace, site: Client, verb: str, ref: str
) -> None:
    [one] = wires("10.00")
    fields = {"act": [verb], "ref": [ref, one.ref], f"digest-{one.ref}": [one.revision.digest]}
    more = {"reason": "duplicate", "to": str(small.ben.pk), "hours": "1"}
    if verb == "snooze":
        more["hours"] = "4"
    answer = sent(site, fields, **more)
    assert (answer.status_code, len(answer.context["done"])) == (200, 1)
    assert sent(site, {"act": [verb], "ref": [ref], "all": [ref]}).status_code == 422
