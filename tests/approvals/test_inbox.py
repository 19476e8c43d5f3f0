"""The inbox: lanes, counts and pages from SQL, searching, and what a pulse tells, with the real rules and people."""

import re
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client

from approvals import desk as verbs
from approvals import inbox
from approvals.inbox import finding, statements
from approvals.models import Request
from approvals.presentation import lanes
from runs import clock
from runs.models import Run
from tests.approvals import desk

HTMX = {"HX-Request": "true"}
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def browser(who: User) -> Client:
    made = Client()
    made.force_login(who)
    return made


def put(
    request: Request, *, left: timedelta | None = None, waited: timedelta = timedelta(0), **fields: Any
) -> str:
    """Moves its times (and what else is given)."""
    now = clock.now()
    fields["decide_by"] = None if left is None else now + left
    Request.objects.filter(pk=request.pk).update(opened_at=now - waited, **fields)
    return request.ref


def many(count: int, **times: Any) -> list[str]:
    """So many requests, by copying one: only what the inbox reads of them is right."""
    request = desk.opened("approvals-wirer")
    put(request, **times)
    for _ in range(count - 1):
        copied(request)
    return list(Request.objects.order_by("ref").values_list("ref", flat=True))


def copied(request: Request) -> Request:
    """Another request like it, with a step, a hold and a revision of its own."""
    row, revision = Request.objects.get(pk=request.pk), request.revision
    step, hold = row.step, row.hold
    top = Run.objects.get(pk=row.run_id).steps.order_by("-index").first()
    assert top is not None
    step.pk, step.index = None, top.index + 1
    step.save(force_insert=True)
    hold.pk, hold.step = Request._meta.pk.get_default(), step
    hold.save(force_insert=True)
    row.pk, row.ref, row.step, row.hold = Request._meta.pk.get_default(), new_ref(), step, hold
    row.save(force_insert=True)
    revision.pk, revision.request = None, row
    revision.save(force_insert=True)
    return row


def new_ref() -> str:
    from approvals.models.request import new_ref as made

    return made()


def found(person: User, **filters: str) -> inbox.Found:
    return inbox.find(User.objects.get(pk=person.pk), inbox.Filters(**filters), clock.now())


def refs(part: inbox.Part) -> list[str]:
    return [row.request.ref for row in part.rows]


def by_lane(person: User, **filters: str) -> dict[str, list[str]]:
    return {name: refs(part) for name, part in found(person, **filters).lanes.items() if part.rows}


# -- Lanes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "left", "waited", "lane"),
    [
        ("20.00", timedelta(minutes=15), timedelta(0), "now"),
        ("20.00", timedelta(minutes=16), timedelta(0), "today"),
        ("20.00", 8 * HOUR, timedelta(0), "today"),
        ("20.00", 8 * HOUR + timedelta(minutes=1), timedelta(0), "later"),
        ("20.00", 9 * DAY, 3 * DAY, "today"),
        ("20.00", 9 * DAY, 3 * DAY - timedelta(minutes=1), "later"),
        ("20.00", None, timedelta(0), "later"),
        ("20.00", None, 3 * DAY, "today"),
        ("2000.00", timedelta(minutes=15), timedelta(0), "now"),
        ("2000.00", timedelta(minutes=16), timedelta(0), "high"),
        ("2000.00", None, 9 * DAY, "high"),
    ],
)
def test_lane_is_the_same_in_sql_and_in_words(
    people: SimpleNamespace, amount: str, left: timedelta | None, waited: timedelta, lane: str
) -> None:
    request = desk.opened(amount=amount)
    ref = put(request, left=left, waited=waited)
    assert by_lane(people.ana) == {lane: [ref]}
    assert lanes.lane(desk.fresh(request), clock.now())[0] == lane


def test_order_in_a_lane_is_tier_then_time_then_ref(people: SimpleNamespace) -> None:
    small, large = [desk.opened(amount="20.00") for _ in range(3)], desk.opened(amount="2000.00")
    first = put(large, left=timedelta(minutes=14))
    equal = [put(one, left=timedelta(minutes=9)) for one in small[:2]]
    Request.objects.filter(ref__in=equal).update(decide_by=clock.now() + timedelta(minutes=9))
    soonest = put(small[2], left=timedelta(minutes=5))
    assert by_lane(people.ana) == {"now": [first, soonest, *sorted(equal)]}


def test_expired_is_in_no_lane_and_not_counted_before_the_sweeper_comes(people: SimpleNamespace) -> None:
    """F38."""
    put(desk.opened(), left=timedelta(seconds=-1))
    told = found(people.ana)
    assert (told.mine, by_lane(people.ana), told.elsewhere) == (0, {}, 0)


def test_request_that_names_no_group_is_the_fallbacks(people: SimpleNamespace, settings: Any) -> None:
    request = desk.opened()
    Request.objects.filter(pk=request.pk).update(group=None)
    assert by_lane(people.ana) == {}
    people.ben.groups.add(Group.objects.get_or_create(name=settings.FALLBACK_REVIEWERS)[0])
    assert by_lane(people.ben) == {"today": [request.ref]}


def test_groups_of_a_person_are_merged_in_order(people: SimpleNamespace) -> None:
    people.ana.groups.add(Group.objects.get(name="finance"))
    later, sooner = desk.opened(amount="6000.00"), desk.opened(amount="2000.00")
    told = [put(sooner, left=2 * HOUR), put(later, left=3 * HOUR)]
    assert by_lane(people.ana) == {"high": told}
    assert by_lane(people.dee) == {"high": told[1:]}


def test_requester_is_told_of_it_and_does_not_find_it_among_their_own(people: SimpleNamespace) -> None:
    desk.opened(owner=people.ana)
    desk.opened(on_behalf_of="ana@example.org")
    told = found(people.ana)
    assert (told.mine, told.elsewhere, by_lane(people.ana)) == (0, 2, {})
    assert found(people.ben).mine == 2


def test_who_started_what_runs_again_is_found_in_one_query(
    people: SimpleNamespace, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    before = desk.submitted(owner=people.ana)
    for _ in range(3):
        Run.objects.filter(pk=desk.opened().run_id).update(again_of=before.pk)
    assert (found(people.ana).mine, found(people.ana).elsewhere) == (0, 3)
    ana = User.objects.get(pk=people.ana.pk)
    with django_assert_max_num_queries(11):
        inbox.find(ana, inbox.Filters(), clock.now())


# -- Put aside ---------------------------------------------------------------------------------------------


def test_snoozed_is_mine_again_when_its_time_is_up(people: SimpleNamespace) -> None:
    request = desk.opened()
    verbs.snooze(request.ref, person=people.ana, until=clock.now() + timedelta(minutes=30))
    told = found(people.ana)
    assert (told.mine, refs(told.snoozed), told.snoozed.count) == (0, [request.ref], 1)
    assert found(people.ben).mine == 1
    desk.later(31 * 60)
    assert (found(people.ana).mine, found(people.ana).snoozed.count) == (1, 0)


def test_approved_by_me_waits_on_others_until_it_stands_no_more(people: SimpleNamespace) -> None:
    desk.change_rule("desk", quorum=2)
    request = desk.opened()
    desk.decide(request, people.ana)
    told = found(people.ana)
    assert (told.mine, refs(told.others), told.others.count) == (0, [request.ref], 1)
    desk.look(request, given="5.00")
    told = found(people.ana)
    assert (told.mine, told.others.count) == (1, 0)


def test_passed_on_waits_on_others_until_they_cannot_decide_it(people: SimpleNamespace) -> None:
    request = desk.opened()
    verbs.delegate(request.ref, person=people.ana, to=people.ben, reason="yours")
    told = found(people.ana)
    assert (told.mine, refs(told.others), found(people.ben).mine) == (0, [request.ref], 1)
    assert by_lane(people.ben, mine="1") == by_lane(people.ben)
    User.objects.filter(pk=people.ben.pk).update(is_active=False)
    told = found(people.ana)
    assert (told.mine, told.others.count) == (1, 0)


def holders(person: User) -> list[tuple[str, bool]]:
    """With whom each row lies, as this person is told it."""
    told = found(person)
    parts = [*told.lanes.values(), told.others, told.snoozed]
    return [(row.lies_with, row.passed_to_me) for part in parts for row in part.rows]


def test_row_says_with_whom_it_lies_as_long_as_it_does(people: SimpleNamespace) -> None:
    request, eve = desk.opened(), desk.person("eve", "refunds")
    assert holders(people.ana) == [("", False)]
    verbs.delegate(request.ref, person=people.ana, to=people.ben, reason="yours")
    assert [holders(one) for one in (people.ana, eve)] == [[("Ben", False)], [("Ben", False)]]
    assert holders(people.ben) == [("Ben", True)]
    shown = {who: browser(who).get("/").content.decode() for who in (people.ana, people.ben)}
    tag = '<span class="tag">with <bdi class="said" dir="auto" hx-disable>Ben</bdi></span>'
    assert (tag in shown[people.ana], tag in shown[people.ben]) == (True, False)
    assert '<span class="tag">passed to you</span>' in shown[people.ben]
    User.objects.filter(pk=people.ben.pk).update(is_active=False)
    assert holders(eve) == [("", False)]


def test_row_is_silent_about_it_where_reviewers_do_not_see_each_other(people: SimpleNamespace) -> None:
    desk.change_rule("desk", blind=True, quorum=2)
    request, eve = desk.opened(), desk.person("eve", "refunds")
    verbs.delegate(request.ref, person=people.ana, to=people.ben, reason="yours")
    assert [holders(one) for one in (people.ana, people.ben, eve)] == [
        [("Ben", False)],
        [("Ben", True)],
        [("", False)],
    ]


def test_auditor_sees_everything_as_for_others(people: SimpleNamespace) -> None:
    for _ in range(3):
        desk.opened()
    told = found(people.dot)
    assert (told.mine, told.elsewhere, told.elsewhere_more) == (0, 3, False)


# -- Pages and counts --------------------------------------------------------------------------------------


def walked(site: Client, first: str, word: str = "next") -> list[str]:
    """Every row of the pages of one lane, in the direction of `word`."""
    seen: list[str] = []
    address: str | None = first
    while address:
        told = site.get(f"/{address}").context["lanes"]
        page = [row.ref for lane in told for row in lane["rows"]]
        seen = [*seen, *page] if word == "next" else [*page, *seen]
        address = told[0][word] if told else None
    return seen


@pytest.mark.parametrize("left", [20 * HOUR, None], ids=["deadline", "none"])
def test_pages_of_a_lane_have_each_row_once_forward_and_backward(
    people: SimpleNamespace, site: Client, left: timedelta | None
) -> None:
    """F86: equal times, and none."""
    told = sorted(many(60, left=left))
    assert walked(site, "?") == told
    last = f"?lane=later&after={_before_last(site)}"
    assert walked(site, last, "previous")[-60:] == told


def _before_last(site: Client) -> str:
    """The mark of the last page."""
    address, mark = "?", ""
    while True:
        lane = site.get(f"/{address}").context["lanes"][0]
        if not lane["next"]:
            return mark
        address = lane["next"]
        mark = re.findall(r"after=([^&]+)", address)[0]


def test_pages_while_rows_come_and_go_repeat_and_skip_none_that_stayed(
    people: SimpleNamespace, site: Client
) -> None:
    """F86."""
    told = sorted(many(60, left=20 * HOUR))
    first = site.get("/").context["lanes"][0]
    gone = [told[3], told[40]]
    Request.objects.filter(ref__in=gone).update(state="withdrawn")
    template = Request.objects.get(ref=told[0])
    copied(template)
    seen = [row.ref for row in first["rows"]] + walked(site, first["next"])
    assert len(seen) == len(set(seen))
    assert set(told) - set(gone) <= set(seen)


def test_counts_are_exact_and_what_is_not_on_the_page_is_counted(
    people: SimpleNamespace, site: Client
) -> None:
    """C-52."""
    many(80, left=20 * HOUR)
    answer = site.get("/")
    [lane] = answer.context["lanes"]
    assert (lane["count"], len(lane["rows"]), lane["rest"], lane["more"]) == (80, 25, 55, False)
    assert answer.context["waiting"] == 80
    assert b"55 further on" in answer.content


def test_count_stops_where_it_says_so(
    people: SimpleNamespace, site: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "COUNTED", 5)
    monkeypatch.setattr(finding, "LOOKED", 4)
    monkeypatch.setattr(finding, "PAGE", 3)
    many(7, left=20 * HOUR)
    answer = site.get("/")
    [lane] = answer.context["lanes"]
    assert (lane["count"], lane["more"], answer.context["at_least"]) == (5, True, True)
    assert b"More than 5 wait for you" in answer.content
    assert b"more than 2 further on" in answer.content


def test_own_requests_before_all_others_leave_a_short_page_that_goes_on(
    people: SimpleNamespace, site: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "LOOKED", 3)
    for minutes in range(4):
        put(desk.opened(owner=people.ana), left=timedelta(hours=20, minutes=minutes))
    other = put(desk.opened(), left=22 * HOUR)
    answer = site.get("/")
    [lane] = answer.context["lanes"]
    assert (lane["rows"], lane["count"], answer.context["elsewhere"]) == ([], 1, 4)
    assert walked(site, lane["next"]) == [other]


@pytest.mark.parametrize(
    "asked",
    ["lane=later&after=x", "lane=nowhere&after=R1~2026-01-01T00:00:00+00:00~A", "lane=later&before=R1~~", "after=",
     "lane=later&after=R1~2026-99-01T00:00:00~A", "lane=later&after=R1~2026-01-01T00:00:00Z~'A"],
)  # fmt: skip
def test_address_of_no_page_is_the_first(people: SimpleNamespace, site: Client, asked: str) -> None:
    ref = put(desk.opened(), left=20 * HOUR)
    answer = site.get(f"/?{asked}")
    assert [row.ref for lane in answer.context["lanes"] for row in lane["rows"]] == [ref]


@pytest.mark.parametrize("lane", list(inbox.LANES))
@pytest.mark.parametrize("who", ["ana", "both"])
def test_lane_reads_an_index_in_its_order(people: SimpleNamespace, lane: str, who: str) -> None:
    """Nothing is sorted below the cut: a page costs the same however many are pending."""
    if who == "both":
        people.ana.groups.add(Group.objects.get(name="finance"))
    look = finding.Desk(User.objects.get(pk=people.ana.pk), inbox.Filters(), clock.now())
    sql, given = statements.lane_rows(statements.LANES[lane], look.whose, look.filters, 26)
    with connection.cursor() as cursor:
        cursor.execute(statements.IN_ORDER)
        cursor.execute(f"EXPLAIN (COSTS OFF) {sql}", {**look.whose.given(), **given, "away": []})
        plan = "\n".join(line for (line,) in cursor.fetchall())
    inner = plan[plan.index("Nested Loop") :]
    assert re.search(r"Index Scan using request_pending_by_(end|due)", inner), plan
    assert "Sort" not in inner, plan


# -- Searching ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "hits"),
    [
        ({"tool": "wire"}, ["wire"]),
        ({"tool": "give_back"}, ["give"]),
        ({"q": "WIRE"}, ["wire"]),
        ({"q": "maria"}, ["give"]),
        ({"q": "acme 240"}, ["wire"]),
        ({"q": "acme maria"}, []),
        ({"q": "_"}, ["give"]),
        ({"q": "%"}, []),
        ({"q": "\\"}, []),
        ({"tier": "R2", "agent": "approvals-wirer"}, ["wire"]),
        ({"tier": "R3"}, []),
        ({"mine": "1"}, []),
    ],
)
def test_search_finds(people: SimpleNamespace, asked: dict[str, str], hits: list[str]) -> None:
    rows = {
        "wire": desk.opened("approvals-wirer").ref,
        "give": desk.opened(on_behalf_of="Maria K.").ref,
    }
    seen = [ref for part in by_lane(people.ana, **asked).values() for ref in part]
    assert sorted(seen) == sorted(rows[name] for name in hits)


def test_search_by_reference(people: SimpleNamespace) -> None:
    one, _ = desk.opened(), desk.opened()
    assert by_lane(people.ana, q=one.ref.lower()) == {"today": [one.ref]}


def test_search_that_left_something_out_says_so(
    people: SimpleNamespace, site: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "SEARCHED", 2)
    many(3, left=20 * HOUR)
    answer = site.get("/", {"q": "wire"})
    assert answer.context["waiting"] == 2
    assert b"Only the first" in answer.content
    assert b"Only the first" not in site.get("/", {"tier": "R2"}).content


def test_nothing_found_offers_to_clear(people: SimpleNamespace, site: Client) -> None:
    desk.opened()
    assert b"No items match." in site.get("/", {"q": "nothing like it"}).content


def test_links_of_pages_keep_the_filters(people: SimpleNamespace, site: Client) -> None:
    many(30, left=20 * HOUR)
    [lane] = site.get("/", {"agent": "approvals-wirer", "q": "acme"}).context["lanes"]
    assert "agent=approvals-wirer" in lane["next"]
    assert "q=acme" in lane["next"]
    assert len(walked(site, lane["next"])) == 5


# -- The pulse -----------------------------------------------------------------------------------------------


def pulse(site: Client, version: str, **asked: str) -> Any:
    answer = site.get("/inbox/pulse", {"v": version, **asked}, headers=HTMX)
    return (
        answer
        if answer.status_code == 204
        else " ".join(re.sub("<[^>]*>", " ", answer.content.decode()).split())
    )


def test_pulse_counts_new_and_changed_exactly(people: SimpleNamespace, site: Client) -> None:
    first = desk.opened()
    version = site.get("/").context["version"]
    assert pulse(site, version).status_code == 204
    desk.opened()
    desk.opened(amount="2000.00")
    desk.look(first, given="5.00")
    assert pulse(site, version) == "2 new, 1 changed Show"


def test_pulse_of_a_page_that_has_not_all_counts_what_arrived(
    people: SimpleNamespace, site: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(30, left=20 * HOUR)
    version = site.get("/").context["version"]
    assert pulse(site, version).status_code == 204
    Request.objects.filter(ref=Request.objects.order_by("-ref").values("ref")[:1]).update(state="withdrawn")
    assert pulse(site, version).status_code == 204  # not on this page
    desk.opened()
    desk.opened(owner=people.ana)
    assert pulse(site, version) == "1 new Show"


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda one, who: desk.decide(one, who.ben), "Decided by Ben: approved"),
        (lambda one, who: desk.decide(one, who.ben, "reject"), "Decided by Ben: rejected"),
        (lambda one, who: put(one, left=timedelta(seconds=-1)), "Expired"),
        (
            lambda one, who: verbs.snooze(one.ref, person=who.ana, until=clock.now() + HOUR / 4),
            "Put off by you",
        ),
        (
            lambda one, who: verbs.delegate(one.ref, person=who.ana, to=who.ben, reason="x"),
            "It waits for others now",
        ),
    ],
)
def test_pulse_tells_in_its_place_what_became_of_a_row(
    people: SimpleNamespace, site: Client, act: Any, said: str
) -> None:
    request = desk.opened()
    version = site.get("/").context["version"]
    act(request, people)
    answer = site.get("/inbox/pulse", {"v": version}, headers=HTMX)
    assert f'id="left-{request.ref}" class="row-left" hx-swap-oob="true"' in answer.content.decode()
    assert pulse(site, version) == f"1 no longer yours to decide Show {said}"


def test_pulse_is_of_the_filters_of_its_page(people: SimpleNamespace, site: Client) -> None:
    asked = {"agent": "approvals-wirer"}
    version = site.get("/", asked).context["version"]
    desk.opened()
    assert pulse(site, version, **asked).status_code == 204
    desk.opened("approvals-wirer")
    assert pulse(site, version, **asked) == "1 new Show"


@pytest.mark.parametrize(
    "version", ["", "x", "1.1.", "99999999999999999.1.A-1", "1.1.A-1~", "1.1.<x>-1", "9999999999999999.0.A-1"]
)
def test_pulse_takes_any_version(people: SimpleNamespace, site: Client, version: str) -> None:
    assert site.get("/inbox/pulse", {"v": version}, headers=HTMX).status_code == 204
    desk.opened()
    assert site.get("/inbox/pulse", {"v": version}, headers=HTMX).status_code in (200, 204)


def test_version_is_short_whatever_waits(people: SimpleNamespace, site: Client) -> None:
    many(60, left=20 * HOUR)
    version = site.get("/").context["version"]
    assert len(version) < 40 + 14 * finding.PAGE
    assert str(inbox.Shown.read(version)) == version


# -- Rows and keys --------------------------------------------------------------------------------------------


def small(request: Request) -> Request:
    Request.objects.filter(pk=request.pk).update(tier="R1")
    return request


def test_small_row_opens_in_its_place(people: SimpleNamespace, site: Client) -> None:
    request = small(desk.opened("approvals-wirer"))
    address = f"/requests/{request.ref}/row"
    assert address in site.get("/").content.decode()
    part = site.get(address, headers=HTMX)
    assert (part.status_code, b"ACME" in part.content, b"<html" in part.content) == (200, True, False)
    page = site.get(address)
    assert (page.status_code, page["Location"]) == (303, f"/requests/{request.ref}")


def test_larger_row_leads_to_its_page(people: SimpleNamespace, site: Client) -> None:
    request = desk.opened("approvals-wirer")
    address = f"/requests/{request.ref}/row"
    assert address not in site.get("/").content.decode()
    assert site.get(address, headers=HTMX)["Location"] == f"/requests/{request.ref}"


def test_approving_together_is_offered_where_something_is_small(
    people: SimpleNamespace, site: Client
) -> None:
    request = desk.opened("approvals-wirer")
    before = site.get("/").content.decode()
    assert ("Approve similar" in before, "Pass on" in before) == (False, True)
    small(request)
    assert "Approve similar" in site.get("/").content.decode()


def test_foreign_row_is_not_there(people: SimpleNamespace) -> None:
    request = small(desk.opened("approvals-wirer"))
    assert browser(people.dee).get(f"/requests/{request.ref}/row", headers=HTMX).status_code == 404


def test_keys_are_off_until_they_are_turned_on(people: SimpleNamespace, site: Client) -> None:
    assert b"keyboard.js" not in site.get("/").content
    assert site.post("/inbox/keys", {"keys": "on"}).status_code == 303
    assert b"keyboard.js" in site.get("/").content
    site.post("/inbox/keys", {"keys": "off"})
    assert b"keyboard.js" not in site.get("/").content
    assert site.get("/inbox/keys").status_code == 405
