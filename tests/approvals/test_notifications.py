"""The mails: who is told, once; what they say, and what they never say; and a mail server that is away."""

import re
from collections.abc import Iterator
from datetime import timedelta
from email import message_from_bytes
from email import policy as email_policy
from smtplib import SMTPServerDisconnected
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from django.contrib.auth.models import Group, User
from django.core import mail
from django.core.mail.backends.locmem import EmailBackend
from django.db import connection, transaction
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as some

from approvals import notifications
from approvals.models import Notification, Request
from runs import clock, endings, holds
from runs.actors import SYSTEM
from tests.approvals import desk

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("whole")]


class Refusing(EmailBackend):
    """A mail server that refuses as long as it is told to."""

    refuses: ClassVar[Exception | None] = None
    depths: ClassVar[list[int]] = []

    def send_messages(self, messages: Any) -> int:
        Refusing.depths.append(len(connection.savepoint_ids))
        if Refusing.refuses is not None:
            raise Refusing.refuses
        return super().send_messages(messages)


@pytest.fixture(autouse=True)
def server(settings: Any) -> Iterator[type[Refusing]]:
    settings.EMAIL_BACKEND = f"{__name__}.Refusing"
    settings.BASE_URL = "https://abeyance.example"
    settings.DEFAULT_FROM_EMAIL = "Abeyance <approvals@abeyance.example>"
    yield Refusing
    Refusing.refuses = None
    notifications._silent_until = 0.0


@pytest.fixture
def request_(people: SimpleNamespace) -> Request:
    return desk.opened()


def told(request: Request) -> list[tuple[str, int, str]]:
    return list(request.notifications.order_by("id").values_list("kind", "number", "address"))


def send_all(request: Request) -> list[bool]:
    return [
        notifications.send(pk) for pk in request.notifications.order_by("id").values_list("pk", flat=True)
    ]


def row_of(request: Request, who: User, **more: Any) -> Notification:
    return Notification.objects.get(request=request, person_id=str(who.pk), **more)


# -- Who is told ---------------------------------------------------------------------------


def test_open_tells_everybody_who_may_decide_once(request_: Request) -> None:
    expected = [("opened", 1, "ana@example.org"), ("opened", 1, "ben@example.org")]
    assert told(request_) == expected
    notifications.announce(request_, "opened")
    assert told(request_) == expected


def test_open_tells_no_requester_and_nobody_without_an_address(people: SimpleNamespace) -> None:
    User.objects.filter(pk=people.dee.pk).update(email="")
    people.dee.groups.add(Group.objects.get(name="refunds"))
    off = desk.person("off", "refunds", is_active=False)
    request = desk.opened(owner=people.ana)
    assert told(request) == [("opened", 1, "ben@example.org")]
    assert off.is_active is False


def test_drift_tells_again_once_a_revision(request_: Request) -> None:
    desk.look(request_, given=desk.Decimal("1.00"))
    desk.look(request_)
    assert told(request_)[2:] == [("changed", 2, "ana@example.org"), ("changed", 2, "ben@example.org")]


def test_own_edit_that_counts_tells_nobody(request_: Request, ana: User) -> None:
    desk.decide(request_, ana, edit=desk.edited(request_, amount="1.00"))
    assert len(told(request_)) == 2


def test_open_without_a_group_tells_the_fallback(people: SimpleNamespace) -> None:
    desk.change_rule("desk", reviewers=None)
    desk.person("fay", "reviewers")
    assert told(desk.opened()) == [("opened", 1, "fay@example.org")]


def test_rolled_back_hold_leaves_no_mail(people: SimpleNamespace) -> None:
    """F44 (b)."""
    with transaction.atomic():
        desk.opened()
        transaction.set_rollback(True)
    assert (Request.objects.count(), Notification.objects.count()) == (0, 0)


# -- What they say ----------------------------------------------------------------------------


def text_of(message: Any) -> str:
    """Everything a mailbox gets, decoded."""
    parsed = message_from_bytes(message.message().as_bytes(), policy=email_policy.default)
    assert not parsed.is_multipart()
    return "\n".join([*(f"{name}: {value}" for name, value in parsed.items()), str(parsed.get_content())])


def test_mail_says_fixed_words_the_reference_and_the_clock(request_: Request, ana: User) -> None:
    Request.objects.filter(pk=request_.pk).update(decide_by="2099-03-12T15:40:00Z")
    message = notifications.compose(row_of(desk.fresh(request_), ana))
    fingerprint = notifications.digests.fingerprint(request_.ref, 1, request_.revision.arguments_digest)
    assert message.subject == f"Approval needed (medium) · by 12 Mar 15:40 UTC · {request_.ref}"
    assert message.body.strip() == (
        "An action waits for a decision from you or 1 other.\n"
        "\n"
        f"  Ref          {request_.ref}\n"
        f"  Fingerprint  {fingerprint}\n"
        "  Decide by    Thu 12 Mar 2099, 15:40 UTC. If nobody decides, nothing is run.\n"
        "\n"
        f"Open: https://abeyance.example/requests/{request_.ref}\n"
        "\n"
        "You'll be asked to sign in. We never take decisions by email or by reply."
    )
    assert (message.to, message.from_email) == (["ana@example.org"], "Abeyance <approvals@abeyance.example>")
    assert message.content_subtype == "plain"


def test_mail_about_a_change_and_about_a_question_say_so(people: SimpleNamespace) -> None:
    changed, question = desk.opened(), desk.opened("approvals-asker")
    desk.look(changed, given=desk.Decimal("1.00"))
    one = notifications.compose(row_of(desk.fresh(changed), people.ana, kind="changed"))
    other = notifications.compose(row_of(question, people.ana))
    assert one.subject.startswith("Approval needed (medium), changed · by ")
    assert other.subject.startswith("Answer needed · by ")
    assert other.body.startswith("An agent’s question waits for an answer from you or 1 other.")


def test_mail_has_one_address_and_it_carries_no_key(request_: Request, ana: User) -> None:
    """F69."""
    message = notifications.compose(row_of(request_, ana))
    found = re.findall(r"\w+://\S+", text_of(message))
    assert found == [f"https://abeyance.example/requests/{request_.ref}"]


def test_mails_of_one_request_are_one_thread(request_: Request, people: SimpleNamespace) -> None:
    desk.look(request_, given=desk.Decimal("1.00"))
    composed = [notifications.compose(row) for row in request_.notifications.all()]
    assert {message.extra_headers["References"] for message in composed} == {
        f"<request.{request_.ref}@abeyance.example>"
    }
    assert len({message.extra_headers["Message-ID"] for message in composed}) == 4


HOSTILE = [
    "Pay\r\nBcc: x@evil.example",
    "A" * 4000,
    "<a href=//evil.example>Approve here</a>",
    "</table><img src=//t>",
    "\u202egnp.exe",
    "💸 {{7*7}} {% now %}",
    "https://evil.example/approve?ok=1",
]


@pytest.mark.parametrize("said", HOSTILE)
def test_mail_holds_nothing_of_the_agents(people: SimpleNamespace, said: str) -> None:
    """F71, C-68: whatever stands in arguments, labels or whom it acts for."""
    request = desk.opened(
        "approvals-wirer", to=said, on_behalf_of=said.replace("\r\n", " ")[:200], labels={"title": said}
    )
    question = desk.opened("approvals-asker", question=said)
    for row in [row_of(request, people.ana), row_of(question, people.ana)]:
        message = notifications.compose(row)
        text = text_of(message)
        assert [
            part for part in (said, said[:40], "evil", "Bcc", "href", "img", "💸", "\u202e") if part in text
        ] == []
        names = sorted(name for name, _ in message.message().items())
        assert names == [
            "Auto-Submitted", "Content-Transfer-Encoding", "Content-Type", "Date", "From", "MIME-Version",
            "Message-ID", "References", "Subject", "To",
        ]  # fmt: skip
        assert len(message.subject.splitlines()) == 1


@given(token=some.text(some.sampled_from("qxzjkvQXZJKV"), min_size=12, max_size=60))
@hypothesis_settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_mail_holds_no_value_name_or_label(people: SimpleNamespace, token: str) -> None:
    request = desk.opened(
        "approvals-wirer", to=token, amount="987.65", on_behalf_of=token, labels={"k": token}
    )
    text = text_of(notifications.compose(row_of(request, people.ana)))
    # a fingerprint may well be of a `bishop`, or have 987 in its digits
    told = (token, "987.65", "wire", "Wire", "approvals-wirer", "the shop")
    assert [part for part in told if part in text] == []


# -- Sending ---------------------------------------------------------------------------------------


def test_send_sends_once(request_: Request) -> None:
    assert send_all(request_) == [True, True]
    assert send_all(request_) == [False, False]
    assert [message.to for message in mail.outbox] == [["ana@example.org"], ["ben@example.org"]]
    row = request_.notifications.first()
    assert (row.attempts, row.problem, row.given_up, row.sent_at is None) == (1, "", False, False)
    assert row.subject == mail.outbox[0].subject


def test_send_what_is_claimed_by_another_sweeper_does_nothing(request_: Request, ana: User) -> None:
    row = row_of(request_, ana)
    assert notifications._claim(row.pk) is not None
    assert notifications.send(row.pk) is False
    assert mail.outbox == []


def test_send_after_a_sweeper_died_in_between_sends_again(request_: Request, ana: User) -> None:
    row = row_of(request_, ana)
    notifications._claim(row.pk)
    desk.later(121)
    assert list(Notification.objects.due(clock.now())) == list(request_.notifications.all())
    assert notifications.send(row.pk) is True
    assert len(mail.outbox) == 1


def test_send_holds_no_transaction_while_it_talks(
    request_: Request, ana: User, server: type[Refusing]
) -> None:
    """HOUSE §2: no network in a transaction. The test's own is the only one there is."""
    server.depths = []
    notifications.send(row_of(request_, ana).pk)
    assert server.depths == [len(connection.savepoint_ids)]


def test_send_that_fails_is_tried_again_each_time_later(
    request_: Request, ana: User, server: type[Refusing]
) -> None:
    server.refuses = ConnectionRefusedError("no \x00 mail today")
    row, waits = row_of(request_, ana), []
    for attempt in range(1, 13):
        assert notifications.send(row.pk) is True
        row.refresh_from_db()
        assert (row.attempts, row.sent_at, row.problem) == (
            attempt,
            None,
            "ConnectionRefusedError: no  mail today",
        )
        waits.append(round((row.next_try_at - clock.now()).total_seconds()))
        assert notifications.send(row.pk) is False
        Notification.objects.filter(pk=row.pk).update(next_try_at=clock.now() - timedelta(seconds=1))
    assert waits == [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600, 3600]
    assert row.given_up is True
    assert notifications.send(row.pk) is False


def test_send_after_the_server_is_back_sends_one_mail(
    request_: Request, ana: User, server: type[Refusing]
) -> None:
    """F71: one that fails stops no other, and none is sent twice."""
    server.refuses = OSError("away")
    assert send_all(request_) == [True, True]
    server.refuses = None
    desk.later(11)
    assert send_all(request_) == [True, True]
    assert send_all(request_) == [False, False]
    assert len(mail.outbox) == 2


@pytest.mark.parametrize("error", [TimeoutError("timed out"), SMTPServerDisconnected("timed out")])
def test_server_that_does_not_answer_is_left_alone_for_a_while(
    request_: Request, server: type[Refusing], error: Exception
) -> None:
    """Each try may take seconds, and the sweeper that sends also finds runs whose worker died."""
    server.refuses = error
    assert send_all(request_) == [True, False]
    assert sorted(request_.notifications.values_list("attempts", flat=True)) == [0, 1]
    assert list(notifications.due(clock.now())) == []
    server.refuses, notifications._silent_until = None, 0.0
    desk.later(11)
    assert send_all(request_) == [True, True]


def test_server_that_refuses_at_once_is_no_reason_to_wait(request_: Request, server: type[Refusing]) -> None:
    server.refuses = ConnectionRefusedError("nobody there")
    assert send_all(request_) == [True, True]


def test_mail_server_away_leaves_the_request_as_it_is(
    request_: Request, ana: User, server: type[Refusing]
) -> None:
    """C-80."""
    server.refuses = OSError("away")
    send_all(request_)
    assert desk.counts(request_) == ("open", 0, 0)
    desk.decide(request_, ana)
    assert desk.result(request_)["result"] == "given 240.00"


# -- No longer of use ---------------------------------------------------------------------------------


def gave_up(request: Request) -> None:
    assert set(send_all(request)) == {False}
    assert mail.outbox == []
    assert set(request.notifications.values_list("given_up", flat=True)) == {True}


def test_send_after_the_decision_gives_up(request_: Request, ana: User) -> None:
    desk.decide(request_, ana)
    gave_up(request_)


def test_send_after_the_end_gives_up_though_the_sweeper_was_not_there(request_: Request) -> None:
    """F38."""
    desk.later(3601)
    gave_up(request_)


def test_send_after_expiry_gives_up(request_: Request) -> None:
    desk.later(3601)
    holds.expire(request_.hold_id)
    gave_up(request_)


def test_send_after_cancel_gives_up(request_: Request) -> None:
    endings.cancel(request_.run_id, actor=SYSTEM)
    gave_up(request_)


def test_send_to_who_lost_the_role_was_disabled_or_deleted_gives_up(
    request_: Request, people: SimpleNamespace
) -> None:
    cleo = desk.person("cleo", "refunds")
    notifications.announce(request_, "opened")
    people.ana.groups.clear()
    User.objects.filter(pk=people.ben.pk).update(is_active=False)
    cleo.delete()
    assert request_.notifications.count() == 3
    gave_up(request_)


def test_send_of_an_older_revision_gives_up_and_the_newer_is_sent(request_: Request) -> None:
    desk.look(request_, given=desk.Decimal("1.00"))
    assert send_all(request_) == [False, False, True, True]
    assert [", changed" in message.subject for message in mail.outbox] == [True, True]
