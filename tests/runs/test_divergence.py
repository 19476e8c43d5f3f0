"""A run that differs from its record: what is shown of it, what an operator may accept, and what never."""

import uuid
from collections.abc import Callable
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from runs import agents, divergence, endings, holds
from runs.agents import RunContext
from runs.exceptions import HoldClosed, RunEnded, WrongState
from runs.models import Hold, JournalEntry, Run, Step
from runs.states import RunStatus
from runs.tools import tool
from runs.tools.declared import Properties, Tool
from tests import agents_for_tests as ours
from tests.factories import CYD, OPERATOR, answer, causes, drive, driven, open_hold, result, step, verbs
from tests.outside import Outside
from tests.pages import browser, person, text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]
Body = Callable[[RunContext], Any]


def code(body: Body) -> None:
    agents.register(agents.Agent("changing", "1", body))  # type: ignore[arg-type]


def noting(*texts: str) -> Body:
    async def changing(run: RunContext) -> int:
        for said in texts:
            await ours.note(said)
        return (await ours.ask("how many?", ours.Answer)).number

    return changing


def diverged(before: Body, after: Body) -> Run:
    """A run of the code before, answered, and then driven with the code after."""
    code(before)
    run = driven("changing")
    answer(open_hold(run), number=5)
    code(after)
    run.refresh_from_db()
    drive(run)
    assert (run.status, causes(run)) == (RunStatus.SUSPENDED, ["diverged"])
    return run


def other_note() -> Run:
    return diverged(noting("a"), noting("b"))


# -- What is shown --------------------------------------------------------------------------


def test_hold_keeps_both_calls() -> None:
    hold = open_hold(other_note())
    was, now = hold.detail["was"], hold.detail["now"]
    assert (was["tool"], was["arguments"]) == ("note", '{"text":"a"}')
    assert (now["tool"], now["arguments"]) == ("note", '{"text":"b"}')
    assert (hold.detail["near"]["at"], hold.detail["index"], hold.detail["ended"]) == (9, 0, True)


def test_hold_of_large_arguments_is_bounded() -> None:
    run = diverged(noting("x" * 200_000 + "a"), noting("x" * 200_000 + "b"))
    hold = open_hold(run)
    assert len(str(hold.detail)) < 3 * divergence.SHOWN
    assert hold.detail["was"]["length"] == 200_012
    assert hold.detail["near"]["at"] == 200_009
    assert hold.detail["near"]["now"][-3:] == 'b"}'
    assert len(hold.why) < 1000


def test_prompt_rebuilt_differently_is_caught(outside: Outside) -> None:
    """A model call's arguments are the whole prompt, so what is not recorded and gets into it is found."""
    today = ["Monday"]

    @tool()
    def complete(prompt: str) -> str:
        """Stands for a model."""
        outside.record("complete", "", 0, {"prompt": prompt}, acted=True)
        return "refund it"

    async def desk(run: RunContext) -> str:
        said = await complete(f"You are a desk. Today is {today[0]}. A customer asks for a refund.")
        await ours.ask("sure?", ours.Answer)
        return said + await complete(f"Today is {today[0]}. You said: {said}. Go on.")

    code(desk)
    run = driven("changing")
    answer(open_hold(run), number=1)
    today[0] = "Tuesday"
    run.refresh_from_db()
    assert causes(drive(run)) == ["diverged"]
    hold = open_hold(run)
    assert (hold.detail["index"], outside.n("complete")) == (0, 1)
    assert "Monday" in hold.detail["near"]["was"]
    assert "Tuesday" in hold.detail["near"]["now"]
    today[0] = "Monday"
    divergence.look_again(run.pk, actor=OPERATOR)
    run.refresh_from_db()
    assert drive(run).status == RunStatus.SUCCEEDED
    assert [call["arguments"]["prompt"][:8] for call in outside.tried("complete")] == ["You are ", "Today is"]


# -- F34: the definition changed while it was parked ---------------------------------------------


def paying_payee(amount: Decimal, payee: str) -> str:
    """Pay {amount} to {payee}."""
    raise AssertionError("never called")


def waiting_payment(rules: Rules) -> Run:
    """The payment is step 1, and approved."""

    async def changing(run: RunContext) -> str:
        await ours.note("a")
        return await ours.pay(Decimal("250.00"), "ACME")

    rules(pay="hold")
    code(changing)
    run = driven("changing")
    holds.release(open_hold(run).pk, actor=OPERATOR, resolution="approved", answer='{"by": "ana"}')
    run.refresh_from_db()
    return run


async def inserted(run: RunContext) -> str:
    await ours.note("a")
    await ours.note("new")
    return await ours.pay(Decimal("250.00"), "ACME")


async def renamed(run: RunContext) -> str:
    await ours.note("a")
    return await Tool(ours.pay.function, Properties(effect=True), name="transfer_money")(
        Decimal("250.00"), "ACME"
    )  # type: ignore[no-any-return]


async def to_payee(run: RunContext) -> str:
    await ours.note("a")
    return await Tool(paying_payee, Properties(effect=True), name="pay")(Decimal("250.00"), "ACME")


CHANGED = {
    "a step inserted before": (inserted, "note"),
    "the tool renamed": (renamed, "transfer_money"),
    "`to` is now `payee`": (to_payee, "pay"),
}


@pytest.mark.parametrize("change", sorted(CHANGED))
def test_definition_changed_is_a_named_mismatch_and_cancel_works(
    change: str, rules: Rules, outside: Outside
) -> None:
    after, asked = CHANGED[change]
    run = waiting_payment(rules)
    code(after)
    drive(run)
    hold = open_hold(run)
    assert (hold.cause, hold.detail["index"]) == ("diverged", 1)
    assert (hold.detail["was"]["tool"], hold.detail["now"]["tool"]) == ("pay", asked)
    assert (outside.n("note"), outside.tried("pay")) == (1, [])
    with pytest.raises(WrongState):
        divergence.accept(run.pk, actor=OPERATOR, why="never of a call that waits")
    assert endings.cancel(run.pk, actor=CYD).status == RunStatus.CANCELLED


# -- Accept ------------------------------------------------------------------------------------------


def test_accept_lets_the_run_go_on_and_calls_nothing_again(outside: Outside) -> None:
    run = other_note()
    divergence.accept(run.pk, actor=OPERATOR, why="only the wording")
    run.refresh_from_db()
    assert (result(drive(run)), outside.n("note")) == (5, 1)
    was, now = step(run, 0).arguments_digest, step(run, 0).accepted_digest
    told = JournalEntry.objects.of(run.stream).get(verb="difference_accepted")
    assert (told.actor_name, was in told.detail, now in told.detail, "wording" in told.detail) == (
        "olu",
        True,
        True,
        True,
    )
    hold = Hold.objects.get(cause="diverged")
    assert (hold.resolution, hold.answer) == ("accepted", "only the wording")


def test_accept_several_in_a_row(outside: Outside) -> None:
    run = diverged(noting("a", "b", "c"), noting("a", "B", "C"))
    for index in (1, 2):
        assert open_hold(run).detail["index"] == index
        divergence.accept(run.pk, actor=OPERATOR, why="case only")
        run.refresh_from_db()
        drive(run)
    assert (result(run), outside.n("note"), verbs(run).count("difference_accepted")) == (5, 3, 2)


def test_accept_also_holds_for_the_code_as_it_was() -> None:
    run = other_note()
    divergence.accept(run.pk, actor=OPERATOR, why="either")
    code(noting("a"))
    run.refresh_from_db()
    assert result(drive(run)) == 5


@pytest.mark.parametrize("why", ["", "  \n"])
def test_accept_without_a_reason(why: str) -> None:
    run = other_note()
    with pytest.raises(WrongState, match="say why"):
        divergence.accept(run.pk, actor=OPERATOR, why=why)
    assert (causes(run), step(run, 0).accepted_digest) == (["diverged"], "")


def test_accept_another_tool() -> None:
    async def other(run: RunContext) -> int:
        return await ours.add(1, 2)

    run = diverged(noting("a"), other)
    with pytest.raises(WrongState, match="step 0 is note in the record and add now"):
        divergence.accept(run.pk, actor=OPERATOR, why="because")


def test_accept_an_end_that_came_too_early() -> None:
    async def over(run: RunContext) -> int:
        return 0

    run = diverged(noting("a"), over)
    with pytest.raises(WrongState, match="does not make another call"):
        divergence.accept(run.pk, actor=OPERATOR, why="because")


def test_accept_what_the_snapshot_does_not_remember() -> None:
    run = diverged(noting("a"), noting("a", "b"))
    divergence.look_again(run.pk, actor=OPERATOR)
    Step.objects.filter(run=run, index=0).update(result='"forged"')
    run.refresh_from_db()
    drive(run)
    with pytest.raises(WrongState, match="the snapshot remembers"):
        divergence.accept(run.pk, actor=OPERATOR, why="because")
    Step.objects.filter(run=run, index=0).update(result=f'"receipt {step(run, 0).key[:8]}"')


def test_accept_when_the_step_changed_since() -> None:
    run = other_note()
    digest = step(run, 0).arguments_digest
    Step.objects.filter(run=run, index=0).update(arguments_digest="0" * 64)
    with pytest.raises(WrongState, match="is not what it was"):
        divergence.accept(run.pk, actor=OPERATOR, why="because")
    Step.objects.filter(run=run, index=0).update(arguments_digest=digest)


def test_accept_twice_and_after_the_end() -> None:
    run = other_note()
    divergence.accept(run.pk, actor=OPERATOR, why="because")
    with pytest.raises(WrongState, match="is not diverged; it is queued"):
        divergence.accept(run.pk, actor=OPERATOR, why="because")
    endings.cancel(run.pk, actor=CYD)
    with pytest.raises(RunEnded):
        divergence.accept(run.pk, actor=OPERATOR, why="because")


def test_accept_another_difference_than_was_seen() -> None:
    run = other_note()
    seen = open_hold(run).pk
    divergence.look_again(run.pk, actor=OPERATOR)
    code(noting("c"))
    run.refresh_from_db()
    drive(run)
    with pytest.raises(HoldClosed, match="differs in another way"):
        divergence.accept(run.pk, actor=OPERATOR, why="because", hold_id=seen)
    assert causes(run) == ["diverged"]


# -- Look again ------------------------------------------------------------------------------------


def test_look_again_with_the_code_back(outside: Outside) -> None:
    run = other_note()
    code(noting("a"))
    divergence.look_again(run.pk, actor=OPERATOR, why="rolled back")
    run.refresh_from_db()
    assert (result(drive(run)), outside.n("note")) == (5, 1)


def test_look_again_with_the_difference_still_there() -> None:
    run = other_note()
    first = open_hold(run).pk
    divergence.look_again(run.pk, actor=OPERATOR)
    run.refresh_from_db()
    assert causes(drive(run)) == ["diverged"]
    assert open_hold(run).pk != first


def test_look_again_at_what_is_not_diverged() -> None:
    run = driven("questioner")
    with pytest.raises(WrongState, match="is not diverged; it is suspended"):
        divergence.look_again(run.pk, actor=OPERATOR)


def test_look_again_leaves_a_pause() -> None:
    run = other_note()
    holds.pause(run.pk, actor=CYD)
    divergence.look_again(run.pk, actor=OPERATOR)
    run.refresh_from_db()
    assert (run.status, causes(run)) == (RunStatus.SUSPENDED, ["person"])


# -- Doors -------------------------------------------------------------------------------------------


@pytest.fixture
def people(db: None) -> SimpleNamespace:
    return SimpleNamespace(cyd=person("cyd"), olu=person("olu", "operators"), dot=person("dot", "auditors"))


@pytest.fixture
def run(people: SimpleNamespace) -> Run:
    run = other_note()
    Run.objects.filter(pk=run.pk).update(owner_id=str(people.cyd.pk))
    return run


def act(client: Client, run: Run, verb: str, reason: str = "", hold: uuid.UUID | None = None) -> Any:
    address = reverse(f"run_{verb}", args=[run.pk, hold or open_hold(run).pk])
    return client.post(address, {"reason": reason})


def test_page_shows_both_calls_side_by_side(run: Run, people: SimpleNamespace) -> None:
    shown = text(browser(people.cyd).get(run.get_absolute_url()))
    assert "Step 0: what the record has, and what the agent asks for now." in shown
    assert "Look again" not in shown
    assert "An operator may accept the difference." in shown
    shown = text(browser(people.olu).get(run.get_absolute_url()))
    assert "Accept difference" in shown
    assert "Look again" in shown


def test_page_says_why_it_cannot_be_accepted(people: SimpleNamespace) -> None:
    async def over(run: RunContext) -> int:
        return 0

    run = diverged(noting("a"), over)
    shown = text(browser(people.olu).get(run.get_absolute_url()))
    assert "It cannot be accepted: at step 0 the agent does not make another call" in shown
    assert "Accept difference" not in shown


def test_page_accepts(run: Run, people: SimpleNamespace, outside: Outside) -> None:
    answered = act(browser(people.olu), run, "accept", "only the wording")
    run.refresh_from_db()
    assert (answered.status_code, result(drive(run)), outside.n("note")) == (303, 5, 1)


def test_page_accepts_not_without_a_reason(run: Run, people: SimpleNamespace) -> None:
    answered = act(browser(people.olu), run, "accept")
    assert (answered.status_code, causes(run)) == (422, ["diverged"])
    assert "Say why this difference does not matter." in text(answered)


@pytest.mark.parametrize("verb", ["accept", "look_again"])
def test_page_refuses_who_is_no_operator(verb: str, run: Run, people: SimpleNamespace) -> None:
    for who in (people.cyd, people.dot):
        assert act(browser(who), run, verb, "because").status_code == 403
    assert causes(run) == ["diverged"]


def test_page_second_click_and_lost_race(run: Run, people: SimpleNamespace) -> None:
    seen = open_hold(run).pk
    assert act(browser(people.olu), run, "look_again", hold=seen).status_code == 303
    answered = act(browser(people.olu), run, "accept", "because", hold=seen)
    assert (answered.status_code, "This run is not diverged" in text(answered)) == (409, True)


def test_api_refuses_keys_and_lets_operators(run: Run, people: SimpleNamespace) -> None:
    """A key belongs to a submitter; nobody accepts a difference of their own run with one."""
    from tests.api.conftest import Api, key_of, refused

    for verb in ("accept", "look-again"):
        refused(
            Api(key_of(people.cyd)).post(f"/runs/{run.pk}/{verb}", {"reason": "because"}), 403, "forbidden"
        )
    assert causes(run) == ["diverged"]


def test_admin_accepts_with_a_reason_only(run: Run, people: SimpleNamespace) -> None:
    client = browser(people.olu)
    address = reverse("admin:runs_run_do", args=[run.pk, "accept"])
    assert "Kept in the run" in text(client.get(address))
    assert client.post(address, {"reason": ""}).status_code == 422
    assert causes(run) == ["diverged"]
    client.post(address, {"reason": "only the wording"})
    run.refresh_from_db()
    assert (run.status, causes(run)) == (RunStatus.QUEUED, [])


def test_admin_looks_again(run: Run, people: SimpleNamespace) -> None:
    browser(people.olu).post(reverse("admin:runs_run_do", args=[run.pk, "look_again"]), {"reason": ""})
    assert causes(run) == []


def test_admin_shows_versions_to_those_who_see_all(run: Run, people: SimpleNamespace) -> None:
    address = reverse("admin:runs_run_versions")
    shown = text(browser(people.olu).get(address))
    assert "No worker is there." in shown
    assert "changing@1" in shown
    assert browser(people.dot).get(address).status_code == 200
    assert browser(people.cyd).get(address).status_code in (302, 403, 404)
