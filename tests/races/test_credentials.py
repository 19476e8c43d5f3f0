"""Workers that are refused the same credential at the same moment renew it once, over connections of their own."""

import threading
import time
from collections.abc import Callable

import pytest
from django.db import connection

from runs import credentials, holds, lifecycle
from runs.agents import RunContext, agent
from runs.exceptions import CredentialRefused, NeedsAuthorisation
from runs.models import Credential, Hold, JournalEntry
from runs.states import Cause
from runs.tools import ToolContext, tool
from tests.factories import OPERATOR, drive, driven, result, submitted
from tests.threads import behind, together

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("invariants")]


class Vault:
    """As a vault that many processes share: a value, and how often it was renewed."""

    def __init__(self) -> None:
        self.value = "value-number-0"
        self.renewals = 0
        self.before_renewal: Callable[[], object] = lambda: None
        self.counting = threading.Lock()

    def obtain(self) -> str:
        return self.value

    def renew(self) -> None:
        self.before_renewal()
        with self.counting:
            self.renewals += 1
        time.sleep(0.1)  # the others come while it renews
        self.value = f"value-number-{self.renewals}"


@pytest.fixture
def vault() -> Vault:
    made = Vault()
    credentials.register("raced", made.obtain, renew=made.renew)
    return made


@tool(effect=True, credentials=("raced",), timeout=5.0)
def raced_remit(context: ToolContext) -> str:
    if context.credential("raced") == "value-number-0":
        raise CredentialRefused("raced")
    return context.credential("raced")[-1]


@agent()
async def raced_remitter(run: RunContext) -> str:
    return await raced_remit()


def renewing() -> dict[str, str]:
    return credentials.renewed(["raced"], CredentialRefused("raced"), {"raced": "value-number-0"})


def test_renew_at_the_same_moment_is_one_renewal(vault: Vault) -> None:
    found = together(*[renewing] * 6)
    assert found == [{"raced": "value-number-1"}] * 6
    assert vault.renewals == 1
    assert Credential.objects.get().version == 1
    assert list(JournalEntry.objects.of("credential:raced").values_list("verb", flat=True)) == ["renewed"]


def test_renew_right_after_another_worker_did(vault: Vault) -> None:
    """The second was refused the value of before the first's renewal: it takes the new one."""
    first = renewing()
    assert (renewing(), vault.renewals) == (first, 1)


def test_renew_between_the_look_and_the_claim(vault: Vault) -> None:
    """Another worker's renewal is over when this one, which saw the old version, wants to begin its own."""
    seen = credentials.version("raced")
    renewing()
    credentials.renew("raced", seen)
    assert vault.renewals == 1


def test_renew_after_one_that_failed(vault: Vault) -> None:
    """The first cannot; the second does not wait for it until a time-out, and tries."""
    failed: list[int] = []

    def once() -> None:
        if not failed:
            failed.append(1)
            raise NeedsAuthorisation("https://vault.example/")

    vault.before_renewal = once
    found = together(renewing, renewing)
    assert sorted(type(each).__name__ for each in found) == ["NeedsAuthorisation", "dict"]
    assert vault.renewals == 1


def test_renew_after_a_worker_that_died_in_its_renewal(vault: Vault) -> None:
    """Its claim runs out by the database's clock."""
    Credential.objects.create(name="raced")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_credential SET renewing_until = abeyance_now() - interval '1 second'")
    assert (renewing(), vault.renewals) == ({"raced": "value-number-1"}, 1)


def test_renew_by_runs_of_two_workers(vault: Vault) -> None:
    """Both runs go through, each on its second attempt; there was one renewal."""
    runs = [submitted("raced-remitter") for _ in range(2)]
    drive(runs[0])
    assert vault.renewals == 1
    vault.value = "value-number-0"  # the second was handed the value of before
    drive(runs[1])
    assert [result(run) for run in runs] == ["1", "2"]


# -- Saying that it is authorised -----------------------------------------------------------


def waits(vault: Vault) -> Hold:
    credentials.register("raced", vault.obtain)
    return driven("raced-remitter").holds.get()


def test_authorise_by_two_at_once_lets_a_call_go_on_once(vault: Vault) -> None:
    hold = waits(vault)
    together(*[lambda: credentials.authorised("raced", actor=OPERATOR)] * 2)
    assert together(*[lambda: holds.look_again(hold.pk)] * 2).count(True) == 1
    assert Hold.objects.open().count() == 0


def test_authorise_behind_a_release_of_the_same_hold(vault: Vault) -> None:
    """Whoever has the hold's row is left alone: nobody waits for nobody, and nothing is stranded."""
    hold = waits(vault)

    def look() -> bool:
        return holds.look_again(hold.pk)

    done, found = behind(lambda: lifecycle.lock(hold.run_id), look, look)
    assert sorted([done, found]) == [False, True]
    assert Hold.objects.waiting_for(Cause.CREDENTIAL, "raced").count() == 0
