"""The mails: an outbox row a person, written with what it tells of, sent later by the sweeper.

A mail leads to the request's page and does nothing else: no token in the address, no value of a call, no
agent's text, and none decides. A mail server that is away delays mails and nothing more.
"""

import time
from datetime import datetime, timedelta
from smtplib import SMTPServerDisconnected
from typing import Any

import structlog
from django.conf import settings
from django.contrib.auth.models import User
from django.core.mail import EmailMessage
from django.db.models import F, QuerySet
from django.template.loader import render_to_string
from django.urls import reverse

from approvals import reviewers
from approvals.models import Notification, Request
from approvals.presentation import chains, digests
from runs.clock import Now, now

log = structlog.get_logger(__name__)

TIER_WORDS = {"R0": "low", "R1": "low", "R2": "medium", "R3": "high", "R4": "critical"}
GIVE_UP_AFTER = 12
LONGEST_WAIT = 3600.0
#: Seconds in which one try ends, whatever the mail server does.
CLAIM = 120.0
#: After a server that did not answer nobody tries for so many seconds: the sweeper has other work.
SILENT_FOR = 30.0
_silent_until = 0.0


def announce(request: Request, kind: str) -> None:
    """Writes a row for everybody who may decide the request now; each is told once a kind and revision."""
    Notification.objects.bulk_create(
        (
            Notification(
                request=request,
                kind=kind,
                number=request.number,
                person_id=str(person.pk),
                address=person.email,
            )
            for person in reviewers.candidates(request)
            if person.email
        ),
        ignore_conflicts=True,
    )


def send(notification_id: int) -> bool:
    """Sends one mail, in no transaction. False: somebody else has it, or it is no longer of use."""
    row = _claim(notification_id)
    if row is None:
        return False
    if not _of_use(row):
        Notification.objects.filter(pk=row.pk).update(given_up=True, problem="nothing to decide any more")
        return False
    _try(row)
    return True


def due(at: datetime) -> QuerySet[Notification]:
    """What may be tried now; nothing while the mail server is known to leave callers waiting."""
    return Notification.objects.due(at) if time.monotonic() >= _silent_until else Notification.objects.none()


def _claim(notification_id: int) -> Notification | None:
    """Puts the next try off before this one: no other sweeper takes it meanwhile, and if this one dies it is
    tried again. None: it is not due, or somebody else was first."""
    at = now()
    rows = Notification.objects.filter(pk=notification_id)
    claimed = (rows & due(at)).update(attempts=F("attempts") + 1, next_try_at=at + timedelta(seconds=CLAIM))
    if not claimed:
        return None
    return rows.select_related("request__run", "request__group", "request__step").first()


def _of_use(row: Notification) -> bool:
    """Whether the request still waits and this person may still decide it."""
    open_now = Request.objects.open_at(now()).filter(pk=row.request_id, number=row.number)
    person = User.objects.filter(pk=row.person_id, is_active=True).first()
    return person is not None and open_now.exists() and reviewers.eligibility(person, row.request).decides


def _try(row: Notification) -> None:
    try:
        message = compose(row)
        message.send()
    except Exception as error:  # a mail backend raises what it likes; the row is tried again later
        _try_later(row, error)
        return
    Notification.objects.filter(pk=row.pk).update(sent_at=Now(), subject=message.subject, problem="")
    log.info("mail_sent", request=row.request.ref, kind=row.kind, to=row.address)


def _try_later(row: Notification, error: Exception) -> None:
    """The next try, each time after twice as long, an hour at most; after twelve there is none."""
    global _silent_until
    if isinstance(error, TimeoutError | SMTPServerDisconnected):
        _silent_until = time.monotonic() + SILENT_FOR
    wait = min(LONGEST_WAIT, 5.0 * 2**row.attempts)
    Notification.objects.filter(pk=row.pk).update(
        next_try_at=now() + timedelta(seconds=wait),
        given_up=row.attempts >= GIVE_UP_AFTER,
        problem=f"{type(error).__name__}: {error}"[:500].replace("\x00", ""),
    )
    log.warning(
        "mail_failed", request=row.request.ref, to=row.address, attempts=row.attempts, error=str(error)
    )


def compose(row: Notification) -> EmailMessage:
    """The message: fixed words, the reference, the clock, and the address of the page."""
    context = _context(row)
    subject = " ".join(render_to_string("emails/request_opened_subject.txt", context).split())
    body = render_to_string("emails/request_opened.txt", context)
    thread = f"<request.{row.request.ref}@{_domain()}>"
    headers = {
        "Message-ID": f"<notice.{row.pk}.{row.request.ref}@{_domain()}>",
        "References": thread,
        "Auto-Submitted": "auto-generated",
    }
    return EmailMessage(subject, body, to=[row.address], headers=headers)


def _domain() -> str:
    return settings.DEFAULT_FROM_EMAIL.rstrip(">").rpartition("@")[2] or "localhost"


def _context(row: Notification) -> dict[str, Any]:
    request = row.request
    item = {
        "ref": request.ref,
        "kind": request.kind,
        "tier": request.tier,
        "decide_by": request.decide_by,
        "chain": chains.names(request),
        "fingerprint": digests.fingerprint(request.ref, request.number, request.revision.arguments_digest),
    }
    return {
        "item": item,
        "changed": row.kind == "changed",
        "tier_word": TIER_WORDS.get(request.tier, "high"),
        "others": max(0, len(reviewers.candidates(request)) - 1),
        "url": settings.BASE_URL + reverse("request", args=[request.ref]),
    }
