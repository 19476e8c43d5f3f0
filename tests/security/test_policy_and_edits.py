"""An edit is a call like any other: policy is asked about what will be sent, also when it is sent."""

from types import SimpleNamespace

import pytest

from tests.approvals import desk

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("whole")]


def test_edit_upwards_meets_the_policy_in_force_at_the_call(people: SimpleNamespace) -> None:
    """Approved at 900 under a policy that takes it; at the call policy denies more than 500."""
    request = desk.opened(amount="50.00")
    desk.decide(request, people.ana, edit=desk.edited(request, amount="900.00"))
    desk.change_rule("too large", expression='has(args.amount) && money(args.amount) > money("500.00")')
    assert desk.result(request)["error"] == "Denied"
    assert desk.world.n("give_back") == 0


def test_edit_upwards_needs_the_tier_of_what_is_sent(people: SimpleNamespace) -> None:
    request = desk.opened(amount="50.00")
    desk.decide(request, people.ana, edit=desk.edited(request, amount="900.00"))
    desk.change_rule("large", expression='has(args.amount) && money(args.amount) > money("500.00")')
    desk.drive(request)
    assert (desk.fresh(request).state, desk.fresh(request).tier) == ("open", "R3")
    assert desk.world.n("give_back") == 0


def test_edit_downwards_is_not_denied_for_what_it_was(people: SimpleNamespace) -> None:
    request = desk.opened(amount="900.00")
    desk.decide(request, people.ana, edit=desk.edited(request, amount="50.00"))
    desk.change_rule("too large", expression='has(args.amount) && money(args.amount) > money("500.00")')
    assert desk.result(request)["result"] == "given 50.00"
