"""Credentials: obtained for each call, renewed once, held for, and given back; no agent ever sees a refusal."""

import time
from datetime import timedelta
from typing import Any

import pytest

from runs import clock, credentials, effects, execution, holds, points
from runs.agents import RunContext, agent
from runs.exceptions import CredentialRefused, NeedsAuthorisation, NotFound, NotSent, Unavailable
from runs.invocation import Known
from runs.models import Credential, Hold, JournalEntry, Run
from runs.states import Cause, RunStatus
from runs.tools import ToolContext, outcomes, tool
from tests.factories import (
    OPERATOR,
    approve,
    causes,
    drive,
    driven,
    go_on,
    later,
    open_hold,
    result,
    step,
    submitted,
    sweep_run,
    verbs,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]


class Vault:
    """A provider that keeps one value, and what was asked of it and sent with it."""

    def __init__(self) -> None:
        self.value = "value-number-0"
        self.refuses: set[str] = set()
        self.problem: Exception | None = None
        self.renewals = 0
        self.renewing: Exception | None = None
        self.sent: list[tuple[str, int]] = []
        self.keys: set[str] = set()
        self.words: list[Exception] = []

    def obtain(self) -> str:
        if self.problem:
            raise self.problem
        return self.value

    def renew(self) -> None:
        if self.renewing:
            raise self.renewing
        self.renewals += 1
        self.value = f"value-number-{self.renewals}"

    def receive(self, context: ToolContext) -> str:
        """The outside: takes the value, or says 401, or does what `words` say next."""
        given = context.credential("bank")
        self.sent.append((given, context.attempt))
        self.keys.add(context.idempotency_key)
        if self.words and (word := self.words.pop(0)):
            raise word
        if given in self.refuses:
            raise CredentialRefused("bank", f"401 Unauthorized: {given}")
        return f"done at attempt {context.attempt}"


vault = Vault()


@pytest.fixture(autouse=True)
def fresh_vault() -> Vault:
    vault.__init__()  # type: ignore[misc]
    credentials.register("bank", vault.obtain, renew=vault.renew, owner="owner@example.org")
    return vault


@tool(effect=True, credentials=("bank",), timeout=1.0)
def remit(context: ToolContext, amount: int) -> str:
    """Remit {amount}."""
    return vault.receive(context)


@tool(effect=True, idempotent=True, credentials=("bank",), timeout=0.3)
def remit_keyed(context: ToolContext, amount: int) -> str:
    return vault.receive(context)


@tool(effect=True, credentials=("bank",), timeout=1.0, retries=2, backoff=0.01)
def remit_retried(context: ToolContext, amount: int) -> str:
    return vault.receive(context)


@tool(credentials=("bank",))
def remit_read(context: ToolContext, amount: int) -> str:
    return vault.receive(context)


@tool(effect=True, timeout=1.0)
def remit_unnamed(context: ToolContext, amount: int) -> str:
    vault.sent.append(("", context.attempt))
    raise CredentialRefused("bank")


TOOLS: dict[str, Any] = {
    "remit": remit,
    "remit_keyed": remit_keyed,
    "remit_retried": remit_retried,
    "remit_read": remit_read,
    "remit_unnamed": remit_unnamed,
}


@agent()
async def remitter(run: RunContext, how: str = "remit") -> str:
    try:
        return await TOOLS[how](5)  # type: ignore[no-any-return]
    except Exception as error:
        return f"the agent saw {type(error).__name__}"


@agent()
async def two_remits(run: RunContext) -> list[str]:
    return [str(o.value) for o in await outcomes(remit(1), remit_read(2))]


def told(run: Run, verb: str) -> list[str]:
    return list(JournalEntry.objects.of(run.stream).filter(verb=verb).values_list("detail", flat=True))


# -- At the time of use -----------------------------------------------------------------------


def test_obtain_after_a_long_pause_gives_the_value_of_now(rules: Any) -> None:
    """The first call after an approval that took days does not run on what was valid at the proposal."""
    rules(remit="hold")
    run = driven("remitter")
    vault.value = "value-of-today"
    later(5 * 86400)
    approve(open_hold(run))
    assert result(go_on(run)) == "done at attempt 1"
    assert vault.sent == [("value-of-today", 1)]


def test_obtain_for_a_call_that_nobody_named_it_for_is_refused() -> None:
    @tool()
    def nosy(context: ToolContext) -> str:
        return context.credential("bank")

    @agent()
    async def asks(run: RunContext) -> str:
        return await nosy()

    assert "does not name 'bank'" in (driven("asks").error or "")


def test_obtain_the_value_of_no_call_gives_it_to_verify_and_facts() -> None:
    assert credentials.value("bank") == "value-number-0"


# -- Refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["remit", "remit_keyed", "remit_retried", "remit_read"])
def test_renew_once_when_it_was_refused(how: str) -> None:
    vault.refuses = {"value-number-0"}
    run = driven("remitter", how=how)
    assert (run.status, result(run)) == (RunStatus.SUCCEEDED, "done at attempt 2")
    assert (vault.sent, vault.renewals) == ([("value-number-0", 1), ("value-number-1", 2)], 1)
    assert vault.keys == {effects.key(run.pk, 0)}
    assert Credential.objects.get().version == 1
    assert len(told(run, "not_sent")) == 1


def test_renew_counts_the_refused_attempt_in_the_ledger() -> None:
    vault.refuses = {"value-number-0"}
    run = driven("remitter")
    assert (step(run, 0).attempt, step(run, 0).effect) == (2, "confirmed")
    assert '"attempt":1' in told(run, "not_sent")[0].replace(" ", "")


def test_hold_after_a_second_refusal_and_go_on_when_authorised() -> None:
    vault.refuses = {"value-number-0", "value-number-1"}
    run = driven("remitter")
    assert (run.status, causes(run), vault.renewals) == (RunStatus.SUSPENDED, ["credential"], 1)
    hold = open_hold(run)
    assert hold.subject == "bank"
    assert "refused" in hold.why
    assert hold.expires_at == hold.opened_at + timedelta(days=7)
    assert (step(run, 0).status, step(run, 0).effect) == ("held", "refused")
    vault.value = "value-from-owner"
    assert credentials.authorised("bank", actor=OPERATOR, why="done") == 1
    later(7300)
    assert result(go_on(run)) == "done at attempt 3"
    assert vault.sent[-1] == ("value-from-owner", 3)
    assert vault.keys == {effects.key(run.pk, 0)}


def test_hold_again_when_the_owner_says_so_and_it_is_still_refused() -> None:
    vault.refuses = {f"value-number-{n}" for n in range(9)}
    run = driven("remitter")
    first = open_hold(run)
    credentials.authorised("bank", actor=OPERATOR)
    go_on(run)
    second = open_hold(run)
    assert (causes(run), second.pk != first.pk) == (["credential"], True)
    assert second.expires_at == second.opened_at + timedelta(days=7)  # the owner acted: a new wait


def test_hold_without_a_way_to_renew() -> None:
    credentials.register("bank", vault.obtain)
    vault.refuses = {"value-number-0"}
    run = driven("remitter")
    assert (causes(run), len(vault.sent)) == (["credential"], 1)
    assert "cannot renew" in open_hold(run).why


def test_hold_when_the_tool_refuses_what_it_does_not_name() -> None:
    run = driven("remitter", how="remit_unnamed")
    assert (causes(run), open_hold(run).subject) == (["credential"], "unknown")
    assert "does not name in credentials=" in open_hold(run).why


def test_hold_when_the_tool_asks_for_a_person() -> None:
    vault.words = [NeedsAuthorisation("https://bank.example/consent", "The consent has run out.")]
    run = driven("remitter")
    hold = open_hold(run)
    assert (hold.cause, hold.subject, hold.detail["url"]) == (
        "credential",
        "bank",
        "https://bank.example/consent",
    )
    assert Credential.objects.get().needs_url == "https://bank.example/consent"
    credentials.authorised("bank", actor=OPERATOR)
    assert result(go_on(run)) == "done at attempt 2"


def test_renew_on_a_later_attempt_of_a_tool_that_is_retried() -> None:
    """First the connection is not made, then the credential is refused: that one is renewed too."""
    vault.words = [NotSent("refused connection")]
    vault.refuses = {"value-number-0"}
    run = driven("remitter", how="remit_retried")
    assert result(go_on(run)) == "done at attempt 3"
    assert [attempt for _, attempt in vault.sent] == [1, 2, 3]


def test_renew_beside_another_call_of_the_same_moment() -> None:
    vault.refuses = {"value-number-0"}
    run = driven("two-remits")
    assert result(run) == ["done at attempt 2", "done at attempt 2"]
    assert vault.renewals == 1


def test_pause_between_the_renewal_and_the_next_attempt() -> None:
    """The refused attempt did nothing, so that nothing is in doubt; after the resume the call is made."""
    vault.refuses = {"value-number-0"}
    run = submitted("remitter")

    def pause() -> None:
        if not Hold.objects.filter(cause=Cause.PERSON).exists():
            holds.pause(run.pk, actor=OPERATOR)

    with points.on("after-renewal", pause):
        drive(run)
    assert (run.status, causes(run), len(vault.sent)) == (RunStatus.SUSPENDED, ["person"], 1)
    assert step(run, 0).effect == "refused"
    holds.unpause(run.pk, actor=OPERATOR)
    assert result(go_on(run)) == "done at attempt 2"


def test_pause_after_the_renewal_of_an_attempt_before_which_one_may_have_acted() -> None:
    """The first attempt's answer was lost: that the second did nothing does not make it undone."""
    vault.words = [ConnectionResetError("the line went dead")]
    run = driven("remitter", how="remit_keyed")
    assert causes(run) == ["in_doubt"]
    vault.refuses = {"value-number-0"}
    later(3600)
    sweep_run(run)
    with points.on("after-renewal", lambda: holds.pause(run.pk, actor=OPERATOR)):
        drive(run)
    assert (len(vault.sent), step(run, 0).effect, step(run, 0).status) == (2, "in_doubt", "dispatched")
    holds.unpause(run.pk, actor=OPERATOR)
    later(7300)
    assert result(go_on(run)) == "done at attempt 3"


# -- Providers ------------------------------------------------------------------------------------


def test_hold_when_the_provider_needs_a_person() -> None:
    vault.problem = NeedsAuthorisation("https://bank.example/consent")
    run = driven("remitter")
    assert (causes(run), vault.sent, open_hold(run).look_again_at) == (["credential"], [], None)
    assert (step(run, 0).status, step(run, 0).attempt) == ("held", 0)
    vault.problem = None
    credentials.authorised("bank", actor=OPERATOR)
    assert result(go_on(run)) == "done at attempt 1"


@pytest.mark.parametrize(("word", "cause"), [("hold", ["approval"]), ("deny", [])])
def test_policy_that_changes_while_the_provider_answers_is_the_one_that_counts(
    word: str, cause: list[str], rules: Any
) -> None:
    """Nothing starts by a verdict that is older than what took the time."""
    obtain = vault.obtain

    def slowly() -> str:
        rules(remit=word)
        return obtain()

    credentials.register("bank", slowly)
    run = driven("remitter")
    assert (causes(run), vault.sent) == (cause, [])


def test_hold_when_nobody_provides_it() -> None:
    credentials._providers.clear()
    run = driven("remitter")
    assert (causes(run), vault.sent) == (["credential"], [])
    assert "nobody provides it" in open_hold(run).why


@pytest.mark.parametrize(("given", "said"), [("12345", "too short"), ("", "too short"), (None, "NoneType")])
def test_hold_for_a_value_that_could_not_be_kept_out_of_records(given: Any, said: str) -> None:
    vault.value = given
    run = driven("remitter")
    assert (causes(run), vault.sent) == (["credential"], [])
    assert said in open_hold(run).why


def test_hold_while_the_provider_fails_and_ask_it_again_later_each_time() -> None:
    vault.problem = ConnectionResetError("vault is down")
    run = driven("remitter")
    first = open_hold(run)
    assert first.look_again_at == first.opened_at + timedelta(seconds=30)
    later(31)
    go_on(run)
    second = open_hold(run)
    assert second.look_again_at == second.opened_at + timedelta(seconds=60)
    assert second.expires_at == first.expires_at  # one wait, with one end
    vault.problem = None
    later(200)
    assert result(go_on(run)) == "done at attempt 1"


def test_hold_for_the_dependency_that_the_provider_names() -> None:
    vault.problem = Unavailable("vault", "sealed")
    run = driven("remitter")
    assert (causes(run), open_hold(run).subject) == (["dependency"], "vault")
    vault.problem = None
    later(31)
    assert result(go_on(run)) == "done at attempt 1"


def test_hold_when_the_provider_does_not_answer_in_time(settings: Any) -> None:
    settings.CREDENTIAL_TIMEOUT = 0.05
    credentials.register("bank", lambda: time.sleep(5) or "never")  # type: ignore[func-returns-value]
    run = driven("remitter")
    assert "no answer in 0.05 s" in open_hold(run).why


def test_hold_when_renewing_fails_and_renew_again_later() -> None:
    vault.refuses, vault.renewing = {"value-number-0"}, ConnectionResetError("vault is down")
    run = driven("remitter")
    assert (causes(run), vault.renewals) == (["credential"], 0)
    assert Credential.objects.get().renewing_until is None
    vault.renewing = None
    later(31)
    later(7300)
    assert result(go_on(run)) == "done at attempt 3"
    assert vault.renewals == 1


@pytest.mark.parametrize("name", ["", "a b", "x/y", "é", "n" * 101])
def test_register_refuses_a_name_that_fits_no_address(name: str) -> None:
    with pytest.raises(ValueError, match="no name for a credential"):
        credentials.register(name, vault.obtain)


@pytest.mark.parametrize("name", ["", "a/b"])
def test_declare_a_tool_refuses_a_name_that_fits_no_address(name: str) -> None:
    with pytest.raises(TypeError, match="no name for a credential"):

        @tool(credentials=(name,))
        def misnamed() -> None: ...


# -- Ends and safety nets -------------------------------------------------------------------------------


def test_cancel_when_nobody_authorised_it_in_seven_days() -> None:
    vault.problem = NeedsAuthorisation("https://bank.example/consent")
    run = driven("remitter")
    later(7 * 86400 + 1)
    sweep_run(run)
    assert (run.status, vault.sent) == (RunStatus.CANCELLED, [])


def test_cancel_after_seven_days_of_a_provider_that_fails() -> None:
    """However often it looks again by itself: the wait has one end."""
    vault.problem = ConnectionResetError("vault is down")
    run = driven("remitter")
    for day in (1, 3, 5, 6.9):
        later(day * 86400)
        go_on(run, rounds=1)
        assert run.status == RunStatus.SUSPENDED
    later(7 * 86400 + 1)
    sweep_run(run)
    assert run.status == RunStatus.CANCELLED


def test_authorise_twice_is_once() -> None:
    vault.problem = NeedsAuthorisation("https://bank.example/consent")
    run = driven("remitter")
    vault.problem = None
    assert credentials.authorised("bank", actor=OPERATOR) == 1
    go_on(run)
    assert credentials.authorised("bank", actor=OPERATOR) == 0
    entries = JournalEntry.objects.of("credential:bank").values_list("verb", flat=True)
    assert list(entries) == ["needed", "authorised"]


def test_authorise_what_no_call_has_asked_for() -> None:
    with pytest.raises(NotFound):
        credentials.authorised("bank", actor=OPERATOR)


def test_go_on_when_another_call_got_through_with_it() -> None:
    """The owner authorised it at the provider and never came to say so."""
    vault.problem = NeedsAuthorisation("https://bank.example/consent")
    waits = driven("remitter")
    vault.problem = None
    assert driven("remitter").status == RunStatus.SUCCEEDED
    assert (Credential.objects.get().problem, Credential.objects.get().needs_url) == ("", "")
    assert result(go_on(waits)) == "done at attempt 1"


def test_go_on_when_it_was_authorised_before_the_hold_was_there() -> None:
    """The worker had noted the problem, the owner was quicker than its hold: nobody would release it."""
    vault.problem = NeedsAuthorisation("https://bank.example/consent")
    run = driven("remitter")
    Credential.objects.update(problem="", needs_url="")
    vault.problem = None
    assert credentials.forgotten() == {"bank"}
    for name in credentials.forgotten():
        credentials.release_waiting(name)
    assert (credentials.forgotten(), result(go_on(run))) == (set(), "done at attempt 1")


def test_authorise_lets_many_go_on_a_few_a_second(settings: Any) -> None:
    settings.RELEASE_RATE = 2.0
    vault.problem = NeedsAuthorisation("https://bank.example/consent")
    for _ in range(5):
        driven("remitter")
    vault.problem = None
    at = clock.now()
    assert credentials.authorised("bank", actor=OPERATOR) == 5
    due = [h.look_again_at for h in Hold.objects.open().order_by("opened_at")]
    gaps = [round((d - due[0]).total_seconds(), 3) for d in due if d and due[0]]
    assert gaps == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert due[0] is not None
    assert due[0] >= at


# -- Permits and doubts -----------------------------------------------------------------------------------


def test_give_the_permit_back_with_a_call_that_was_refused(rules: Any) -> None:
    rules(remit="hold")
    vault.refuses = {"value-number-0", "value-number-1"}
    run = driven("remitter")
    approve(open_hold(run))
    go_on(run)
    assert (causes(run), step(run, 0).permit) == (["credential"], "")
    vault.refuses = set()
    credentials.authorised("bank", actor=OPERATOR)
    later(7300)
    assert result(go_on(run)) == "done at attempt 3"  # nobody was asked again


def test_keep_a_doubt_while_the_credential_is_missing() -> None:
    """An attempt timed out and may have acted; the next may not start yet. The ledger does not say that it was
    refused, and the call goes on under its key."""
    vault.words = [TimeoutError("no answer")]
    run = driven("remitter", how="remit_keyed")
    assert causes(run) == ["in_doubt"]
    vault.problem = NeedsAuthorisation("https://bank.example/consent")
    later(60)
    go_on(run)
    assert (causes(run), step(run, 0).status, step(run, 0).effect) == (
        ["credential"],
        "dispatched",
        "in_doubt",
    )
    vault.problem = None
    credentials.authorised("bank", actor=OPERATOR)
    later(120)
    assert result(go_on(run)) == "done at attempt 2"
    assert vault.keys == {effects.key(run.pk, 0)}


def test_keep_a_doubt_when_the_second_attempt_is_refused() -> None:
    vault.words = [TimeoutError("no answer")]
    run = driven("remitter", how="remit_keyed")
    vault.refuses = {f"value-number-{n}" for n in range(3)}
    later(60)
    go_on(run)
    assert (causes(run), step(run, 0).effect) == (["credential"], "in_doubt")
    assert step(run, 0).attempt == 3  # twice refused


def test_let_late_evidence_answer_a_call_that_waits_for_its_credential() -> None:
    test_keep_a_doubt_when_the_second_attempt_is_refused()
    run = Run.objects.get()
    waits = step(run, 0)
    effects.evidence(
        run.pk,
        0,
        effect_key=waits.key,
        attempt=1,
        digest=waits.arguments_digest,
        known=Known("returned", '"done late"'),
        actor=OPERATOR,
    )
    assert result(go_on(run)) == "done late"
    assert len(vault.sent) == 3


def test_recover_a_call_whose_worker_died_gives_it_a_value() -> None:
    """The repeated call is handed the credential too."""
    run = submitted("remitter", how="remit_keyed")

    def die() -> None:
        if not vault.sent[1:]:
            raise KeyboardInterrupt

    with points.on("after-effect-before-record", die), pytest.raises(KeyboardInterrupt):
        execution.drive(run.pk)
    vault.value = "value-of-today"
    later(60)
    go_on(run)
    assert result(run) == "done at attempt 2"
    assert vault.sent == [("value-number-0", 1), ("value-of-today", 2)]


def test_take_no_refusal_that_comes_late_for_a_result() -> None:
    """A call brings CredentialRefused after its time was up: that is no evidence that it happened."""

    @tool(effect=True, credentials=("bank",), timeout=0.1)
    def remit_slowly(context: ToolContext) -> str:
        time.sleep(0.4)
        vault.sent.append(("late", 1))
        raise CredentialRefused("bank")

    @agent()
    async def slow_remitter(run: RunContext) -> None:
        await outcomes(remit_slowly(), remit_read(1))

    run = driven("slow-remitter")
    while ("late", 1) not in vault.sent:
        time.sleep(0.01)
    time.sleep(0.1)
    assert (causes(run), step(run, 0).evidence, "evidence" in verbs(run)) == (["in_doubt"], [], False)
