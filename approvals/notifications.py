"""The mails: an outbox row a person, written with what it tells of, sent later by the sweeper.

A mail leads to the request's page and does nothing else: no token in the address, no value of a call, no
agent's text, and none decides. A mail server that is away delays mails and nothing more.
"""

import time
from collections.abc import Iterable, Sequence
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
from approvals.models import Inquiry, Notification, Request
from approvals.presentation import chains, digests
from runs import points, prepared
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


_ANNOUNCE = """
INSERT INTO approvals_notification
  (request_id, kind, number, person_id, address, subject, attempts, given_up, problem)
SELECT %(request)s, %(kind)s, %(number)s, person, address, '', 0, false, ''
FROM unnest(%(people)s::text[], %(addresses)s::text[]) AS told (person, address)
ON CONFLICT DO NOTHING
"""


#: What mails tell of; where a thing happens several times, its number follows after a dot (`passed_on.2`).
KINDS = ("opened", "changed", "passed_on", "asked", "answered", "stopped")


def announce(request: Request, kind: str, *, members: Sequence[User] | None = None) -> None:
    """Writes a row for everybody who may decide the request now; each is told once a kind and revision. `members`:
    those of its group, where they are at hand."""
    tell(request, kind, reviewers.candidates(request, members))


def tell_owner(request: Request, kind: str) -> None:
    """Likewise for who owns the run."""
    owner = request.run.owner_id
    if owner.isdecimal():
        tell(request, kind, User.objects.filter(pk=int(owner), is_active=True))


def tell(request: Request, kind: str, who: Iterable[User]) -> None:
    """Likewise for these people."""
    people = [person for person in who if person.email]
    told = {
        "request": request.pk,
        "kind": kind,
        "number": request.number,
        "people": [str(person.pk) for person in people],
        "addresses": [person.email for person in people],
    }
    prepared.write(_ANNOUNCE, told)


def send(notification_id: int) -> bool:
    """Sends one mail, in no transaction. False: somebody else has it, or it is no longer of use."""
    row = _claim(notification_id)
    if row is None:
        return False
    points.reach("after-mail-claimed")
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
    """Whether the request still waits and this person may still decide it, or answer what was asked."""
    open_now = Request.objects.open_at(now()).filter(pk=row.request_id, number=row.number)
    person = User.objects.filter(pk=row.person_id, is_active=True).first()
    if person is None or not open_now.exists():
        return False
    kind, _, which = row.kind.partition(".")
    if kind == "asked":
        return Inquiry.objects.filter(pk=int(which), answered_at=None).exists()
    return reviewers.eligibility(person, row.request).decides


def _try(row: Notification) -> None:
    try:
        message = compose(row)
        points.reach("before-mail")
        message.send()
        points.reach("after-mail")
    except Exception as error:  # a mail backend raises what it likes; the row is tried again later
        _try_later(row, error)
        return
    Notification.objects.filter(pk=row.pk).update(sent_at=Now(), subject=message.subject, problem="")
    points.reach("after-mail-noted")
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
    name = "question_asked" if context["word"] == "asked" else "request_opened"
    subject = " ".join(render_to_string(f"emails/{name}_subject.txt", context).split())
    body = render_to_string(f"emails/{name}.txt", context)
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
    word = row.kind.partition(".")[0]
    page = request.run.get_absolute_url() if word == "asked" else reverse("request", args=[request.ref])
    return {
        "item": item,
        "word": word,
        "changed": word == "changed",
        "tier_word": TIER_WORDS.get(request.tier, "high"),
        "others": max(0, len(reviewers.candidates(request)) - 1),
        "url": settings.BASE_URL + page,
    }
