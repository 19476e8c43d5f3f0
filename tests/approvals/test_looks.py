"""Drift: what changed while a request waits, what a look may void and what not, and what a reviewer must tick."""

from decimal import Decimal
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import User

from approvals import looks
from approvals.exceptions import Stale, Unfit
from approvals.models import Request
from runs import facts
from runs.models import FactReading
from tests.approvals import desk

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("whole")]
AWAY = ConnectionResetError("the bank does not answer")


@pytest.fixture
def request_(people: SimpleNamespace) -> Request:
    return desk.opened()


def shown(request: Request) -> dict[str, str | None]:
    """What a page shows as the facts now."""
    standing = desk.fresh(request)
    return {fact["name"]: fact["value"] for fact in looks.current(standing, standing.revision)}


def changes(said: Stale) -> list[tuple[str, str | None, str | None]]:
    return [(each["title"], each["then"], each["now"]) for each in said.changes]


# -- Material ---------------------------------------------------------------------------


def test_look_that_sees_the_same_voids_nothing(request_: Request, ana: User) -> None:
    before = request_.revision.digest
    assert desk.look(request_) is True
    assert (desk.numbers(request_), desk.fresh(request_).revision.digest) == ([(1, "")], before)
    assert desk.fresh(request_).looked_at > request_.looked_at
    desk.decide(request_, ana, digest=before)
    assert desk.counts(request_) == ("in_force", 1, 1)


def test_look_that_sees_a_material_change_makes_the_next_revision(request_: Request, ana: User) -> None:
    old = request_.revision.digest
    desk.look(request_, given=Decimal("40.00"))
    assert desk.numbers(request_) == [(1, ""), (2, "drift")]
    standing = desk.fresh(request_)
    assert [(c["name"], c["then"], c["now"]) for c in standing.revision.changes] == [
        ("given_back", '"0.00"', '"40.00"')
    ]
    assert (standing.decide_by, standing.state) == (request_.decide_by, "open")
    with pytest.raises(Stale) as stale:
        desk.decide(request_, ana, digest=old)
    assert changes(stale.value) == [("Given back so far", '"0.00"', '"40.00"')]
    assert desk.counts(request_) == ("open", 0, 0)


def test_approve_after_a_material_change_wants_it_ticked(request_: Request, ana: User) -> None:
    desk.look(request_, given=Decimal("40.00"))
    with pytest.raises(Unfit) as refused:
        desk.decide(request_, ana)
    assert refused.value.errors == {
        "ack-given_back": "Tick that you have seen: Given back so far was 0.00 and is 40.00 now"
    }
    desk.decide(request_, ana, seen=frozenset({"given_back"}))
    assert desk.result(request_)["result"] == "given 240.00"


def test_tick_is_wanted_again_after_another_revision(request_: Request, ana: User) -> None:
    desk.look(request_, given=Decimal("40.00"))
    desk.decide(request_, ana, edit=desk.edited(request_, amount="30.00"), seen=frozenset({"given_back"}))
    assert desk.result(request_)["result"] == "given 30.00"


def test_change_that_went_back_wants_no_tick(request_: Request, ana: User) -> None:
    desk.look(request_, given=Decimal("40.00"))
    desk.look(request_, given=Decimal("0.00"))
    assert desk.numbers(request_) == [(1, ""), (2, "drift"), (3, "drift")]
    desk.decide(request_, ana)
    assert desk.counts(request_) == ("in_force", 1, 1)


def test_reject_wants_no_tick(request_: Request, ana: User) -> None:
    desk.look(request_, given=Decimal("40.00"))
    desk.decide(request_, ana, "reject")
    assert desk.counts(request_) == ("rejected", 1, 0)


def test_change_voids_the_first_of_two_approvals(people: SimpleNamespace) -> None:
    desk.change_rule("desk", quorum=2)
    request = desk.opened()
    desk.decide(request, people.ana)
    desk.look(request, given=Decimal("40.00"))
    seen = frozenset({"given_back"})
    assert desk.decide(request, people.ben, seen=seen).waits_for == "1 more approval needed."
    desk.decide(request, people.ana, seen=seen)
    assert desk.counts(request) == ("in_force", 3, 1)


# -- Blocking -----------------------------------------------------------------------------


def test_approve_after_a_blocking_change_is_refused_and_reject_is_not(request_: Request, ana: User) -> None:
    desk.look(request_, status="disputed")
    for seen in (frozenset(), frozenset({"charge_state"})):
        with pytest.raises(Stale) as blocked:
            desk.decide(request_, ana, seen=seen)
        assert changes(blocked.value) == [("State of the charge", '"paid"', '"disputed"')]
        assert "State of the charge was paid and is disputed now" in str(blocked.value)
    assert desk.counts(request_) == ("open", 0, 0)
    desk.decide(request_, ana, "reject", reason="disputed")
    assert desk.result(request_)["args"] == ["disputed", "Ana"]


def test_edit_after_a_blocking_change_is_refused(request_: Request, ana: User) -> None:
    desk.look(request_, status="disputed")
    with pytest.raises(Stale):
        desk.decide(request_, ana, edit=desk.edited(request_, amount="1.00"))
    assert desk.numbers(request_) == [(1, ""), (2, "drift")]


def test_approve_after_a_blocking_change_went_back_is_possible(request_: Request, ana: User) -> None:
    desk.look(request_, status="disputed")
    desk.look(request_, status="paid")
    desk.decide(request_, ana)
    assert desk.result(request_)["result"] == "given 240.00"


# -- Information ----------------------------------------------------------------------------


def test_change_for_information_is_shown_and_voids_nothing(request_: Request, ana: User) -> None:
    before = request_.revision.digest
    desk.look(request_, size=4)
    assert desk.numbers(request_) == [(1, "")]
    assert shown(request_) == {"charge_state": '"paid"', "given_back": '"0.00"', "list_size": "4"}
    desk.decide(request_, ana, digest=before)
    assert desk.result(request_)["result"] == "given 240.00"


def test_unreadable_information_blocks_nothing(request_: Request, ana: User) -> None:
    desk.look(request_, size=AWAY)
    assert shown(request_)["list_size"] is None
    desk.decide(request_, ana)
    assert desk.counts(request_) == ("in_force", 1, 1)


# -- Unreadable --------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "raised"), [("status", Stale), ("given", Unfit)])
def test_look_that_cannot_read_blocks_and_voids_nothing(
    request_: Request, ana: User, name: str, raised: type[Exception]
) -> None:
    before, value = request_.revision.digest, desk.world.facts[name]
    desk.look(request_, **{name: AWAY})
    assert (desk.numbers(request_), desk.fresh(request_).revision.digest) == ([(1, "")], before)
    with pytest.raises(raised) as blocked:
        desk.decide(request_, ana)
    assert "could not be checked" in str(vars(blocked.value)) + str(blocked.value)
    desk.look(request_, **{name: value})
    desk.decide(request_, ana, digest=before)
    assert desk.counts(request_) == ("in_force", 1, 1)


@pytest.fixture
def unread(request_: Request) -> Request:
    """At R2; what was given back so far could not be read at the last look."""
    desk.look(request_, given=AWAY)
    return desk.fresh(request_)


SEEN = frozenset({"given_back"})


def test_unreadable_material_fact_is_accepted_knowingly(unread: Request, ana: User) -> None:
    """It enters the digest as unreadable, and still unreadable at the call counts as equal."""
    before = unread.revision.digest
    desk.decide(unread, ana, seen=SEEN)
    standing = desk.fresh(unread).revision
    assert desk.numbers(unread) == [(1, ""), (2, "unreadable")]
    assert (standing.fact_values()["given_back"], standing.digest == before) == (None, False)
    assert desk.fresh(unread).decisions.get().digest == standing.digest
    assert desk.result(unread)["result"] == "given 240.00"


def test_unreadable_fact_that_was_accepted_and_is_read_at_the_call_asks_again(
    unread: Request, ana: User
) -> None:
    desk.decide(unread, ana, seen=SEEN)
    desk.world.facts["given"] = Decimal("40.00")
    assert (desk.drive(unread).status, desk.world.calls) == ("suspended", [])
    assert desk.numbers(unread)[-1] == (3, "drift")


def test_unreadable_fact_is_accepted_once_however_often_it_is_sent(unread: Request, ana: User) -> None:
    told = {"seen": SEEN, "nonce": "n1", "digest": unread.revision.digest}
    first, second = (desk.decide(unread, ana, **told) for _ in range(2))
    assert (second.again, second.decision) == (True, first.decision)
    assert len(desk.numbers(unread)) == 2


@pytest.mark.parametrize(("name", "tier"), [("status", "R2"), ("given", "R3"), ("given", "R4")])
def test_unreadable_fact_is_not_accepted(request_: Request, ana: User, name: str, tier: str) -> None:
    """A blocking one at no tier, a material one above R2 not."""
    desk.look(request_, **{name: AWAY})
    Request.objects.filter(pk=request_.pk).update(tier=tier)
    with pytest.raises(Stale, match="could not be checked"):
        desk.decide(request_, ana, seen=frozenset({"given_back", "charge_state"}))
    assert desk.counts(request_) == ("open", 0, 0)


def test_look_that_cannot_read_one_and_sees_another_change_makes_a_revision_of_it(request_: Request) -> None:
    desk.look(request_, status=AWAY, given=Decimal("40.00"))
    standing = desk.fresh(request_)
    assert desk.numbers(request_) == [(1, ""), (2, "drift")]
    assert standing.revision.fact_values() == {
        "charge_state": '"paid"',
        "given_back": '"40.00"',
        "list_size": "3",
    }
    assert shown(request_)["charge_state"] is None


def test_fact_unreadable_when_proposed_does_not_block_once_it_is_read(people: SimpleNamespace) -> None:
    """It could not be read at first: from when it could, it must not change."""
    desk.world.facts["status"] = AWAY
    request = desk.opened()
    with pytest.raises(Stale):
        desk.decide(request, people.ana)
    desk.look(request, status="paid")
    standing = desk.fresh(request)
    assert looks.moved(standing, standing.revision) == []
    desk.look(request, status="disputed")
    with pytest.raises(Stale):
        desk.decide(request, people.ana)
    desk.look(request, status="paid")
    desk.decide(request, people.ana)
    assert desk.result(request)["result"] == "given 240.00"


def test_material_fact_unreadable_when_proposed_is_ticked_once_it_is_read(people: SimpleNamespace) -> None:
    desk.world.facts["given"] = AWAY
    request = desk.opened()
    desk.look(request, given=Decimal("0.00"))
    with pytest.raises(Unfit) as refused:
        desk.decide(request, people.ana)
    assert list(refused.value.errors) == ["ack-given_back"]
    desk.decide(request, people.ana, seen=frozenset({"given_back"}))
    assert desk.counts(request) == ("in_force", 1, 1)


# -- Too old ------------------------------------------------------------------------------------


def test_approve_on_old_facts_answers_that_they_are_checked(request_: Request, ana: User) -> None:
    desk.later(61)
    with pytest.raises(Stale) as stale:
        desk.decide(request_, ana)
    assert (stale.value.code, stale.value.checking) == ("stale", True)
    assert (desk.counts(request_), desk.refusals(request_)) == (("open", 0, 0), [("Ana", "stale")])
    desk.look(request_)
    desk.decide(request_, ana)
    assert desk.counts(request_) == ("in_force", 1, 1)


def test_reject_on_old_facts_waits_for_no_look(request_: Request, ana: User) -> None:
    desk.later(61)
    desk.decide(request_, ana, "reject")
    assert desk.counts(request_) == ("rejected", 1, 0)


def test_approve_without_facts_never_waits_for_a_look(people: SimpleNamespace) -> None:
    request = desk.opened("approvals-wirer")
    desk.later(600)
    assert looks.look(request.pk) is False
    desk.decide(request, people.ana)
    assert desk.result(request)["result"] == "wired 240.00"


# -- Wanting and making -------------------------------------------------------------------------


def test_want_twice_keeps_the_first_time_and_a_look_clears_it(request_: Request) -> None:
    looks.want(request_)
    first = desk.fresh(request_).look_wanted_at
    desk.later(5)
    looks.want(desk.fresh(request_))
    assert (desk.fresh(request_).look_wanted_at, first is None) == (first, False)
    desk.look(request_)
    assert desk.fresh(request_).look_wanted_at is None


def test_look_at_a_closed_request_asks_nothing_outside(request_: Request, ana: User) -> None:
    looks.want(request_)
    desk.decide(request_, ana, "reject")
    before = FactReading.objects.count()
    assert desk.look(request_, given=Decimal("40.00")) is False
    assert (FactReading.objects.count(), desk.fresh(request_).look_wanted_at) == (before, None)


def test_look_that_comes_after_another_revision_moves_nothing(request_: Request, ana: User) -> None:
    """It began on revision 1; an edit came before it was kept."""
    readings = facts.look(desk.give_back, {"charge": "ch_1", "amount": Decimal("240.00")})
    desk.decide(request_, ana, edit=desk.edited(request_, amount="1.00"))
    assert looks._keep(request_, 1, readings, []) is False
    assert FactReading.objects.filter(moment="request").count() == 0


def test_look_after_an_edit_sees_the_edited_call(people: SimpleNamespace) -> None:
    request = desk.opened(amount="2000.00")
    desk.decide(request, people.ana, edit=desk.edited(request, charge="ch_2"))
    desk.look(request, given=Decimal("7.00"))
    standing = desk.fresh(request)
    assert desk.numbers(request) == [(1, ""), (2, "edit"), (3, "drift")]
    assert (standing.revision.author_name, standing.revision.reason) == ("Ana", "drift")
    assert standing.revision.arguments == '{"amount":"2000.00","charge":"ch_2"}'


# -- At the call ---------------------------------------------------------------------------------


def test_drift_right_before_the_call_reopens_and_runs_nothing(
    request_: Request, people: SimpleNamespace
) -> None:
    desk.decide(request_, people.ana)
    desk.world.facts["given"] = Decimal("240.00")
    run = desk.drive(request_)
    assert (run.status, desk.world.calls, desk.step_of(request_).dispatched_at) == ("suspended", [], None)
    assert desk.counts(request_) == ("open", 1, 1)
    assert desk.numbers(request_) == [(1, ""), (2, "drift")]
    permit = request_.permits.get()
    assert (permit.void_why, permit.consumed_at) == ("drift", None)
    standing = desk.fresh(request_)
    assert standing.hold_id != request_.hold_id
    assert standing.decide_by == standing.hold.expires_at
    desk.decide(request_, people.ben, seen=frozenset({"given_back"}))
    assert desk.result(request_)["decision"] == ["approve", "Ben", ""]


def test_information_that_changed_right_before_the_call_stops_nothing(request_: Request, ana: User) -> None:
    desk.decide(request_, ana)
    desk.world.facts["size"] = 99
    assert desk.result(request_)["result"] == "given 240.00"


def test_unreadable_right_before_the_call_waits_for_its_source(request_: Request, ana: User) -> None:
    desk.decide(request_, ana)
    desk.world.facts["given"] = AWAY
    run = desk.drive(request_)
    assert (run.status, desk.world.calls) == ("suspended", [])
    hold = run.holds.open().get()
    assert (hold.cause, hold.subject) == ("dependency", "payments")
    assert desk.counts(request_) == ("in_force", 1, 1)
    desk.world.facts["given"] = Decimal("0.00")
    desk.later(31)
    assert desk.holds.look_again(hold.pk) is True
    assert desk.result(request_)["result"] == "given 240.00"


def test_drift_reopens_an_edited_call_with_its_author_and_note(
    request_: Request, people: SimpleNamespace
) -> None:
    desk.decide(request_, people.ana, edit=desk.edited(request_, amount="25.00"), reason="one invoice only")
    desk.world.facts["given"] = Decimal("5.00")
    desk.drive(request_)
    standing = desk.fresh(request_).revision
    told = (standing.number, standing.reason, standing.author_name, standing.note, standing.arguments)
    assert told == (3, "drift", "Ana", "one invoice only", '{"amount":"25.00","charge":"ch_1"}')
    desk.decide(request_, people.ben, seen=frozenset({"given_back"}))
    said = desk.result(request_)
    assert (said["result"], said["decision"]) == ("given 25.00", ["edit", "Ana", "one invoice only"])
