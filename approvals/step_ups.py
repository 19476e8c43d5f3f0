"""Showing again who one is, right before a decision of high risk: by a code of the authenticator app, a recovery code
or a passkey.

What is shown counts for one decision of one person in one session and is used once (`decisions/care.py`). Tries are
limited by session, not by account: who has neither the session nor a signed-in one cannot use up the tries of who
has it, and failed sign-ins elsewhere do not count here. Tries and used codes are counted for all web processes
together, in the database (`CACHES`). What is shown and what is refused is in the request's journal.
"""

import json

from allauth.core import ratelimit
from allauth.mfa.models import Authenticator
from allauth.mfa.webauthn.internal import auth as webauthn
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.serializers.json import DjangoJSONEncoder
from django.db import transaction
from django.http import HttpRequest

from approvals import rights
from approvals.models import Request, StepUp
from approvals.origin import session_of
from runs import journal

WRONG = "This code is not right, or it was used before. Wait for the next one, and type that."
WRONG_KEY = "This passkey was not accepted. Try again, or type a code."
TOO_MANY = "Too many tries. Wait five minutes, then try again; what you typed is kept."
LONGEST, LONGEST_KEY = 64, 20_000


class Refused(Exception):
    """`status`: 422, or 429 after too many tries."""

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status

    @property
    def code(self) -> str:
        return "not_accepted" if self.status == 422 else "too_many_tries"


def methods(person: User) -> frozenset[str]:
    """The kinds of second factor a person has; recovery codes alone are none."""
    return frozenset(Authenticator.objects.filter(user=person).values_list("type", flat=True))


def passkey_options(person: User) -> str:
    """JSON of what the browser signs; its state is kept in the session until the answer comes."""
    return json.dumps({"request_options": webauthn.begin_authentication(person)}, cls=DjangoJSONEncoder)


def prove(request: HttpRequest, person: User, found: Request, *, digest: str, verb: str) -> StepUp:
    """Checks what was sent and writes it down for this decision, in a session with a new id. Raises Refused."""
    told = {"about": verb, "digest": digest}
    try:
        used = _within_limits(request, person)
    except Refused as refused:
        actor = rights.actor(person, "page")
        journal.write(found, actor, "refused", verb="step_up", code=refused.code, **told)
        raise
    request.session.cycle_key()
    bound = {"request": found, "person_id": str(person.pk), "session": session_of(request)}
    with transaction.atomic():
        journal.write(found, rights.actor(person, "page"), "stepped_up", method=str(used.type), **told)
        return StepUp.objects.create(**bound, digest=digest, verb=verb, method=str(used.type))


def _within_limits(request: HttpRequest, person: User) -> Authenticator:
    limited = {"action": "step_up", "key": f"{person.pk}-{session_of(request)}"}
    if not ratelimit.consume(request, **limited):
        raise Refused(TOO_MANY, 429)
    used = _authenticator(person, request)
    ratelimit.clear(request, **limited)
    used.record_usage()
    return used


def _authenticator(person: User, request: HttpRequest) -> Authenticator:
    if sent := request.POST.get("credential", ""):
        return _by_passkey(person, sent)
    code = request.POST.get("code", "").strip()
    coded = Authenticator.objects.filter(user=person).exclude(type=Authenticator.Type.WEBAUTHN)
    for each in coded if 0 < len(code) <= LONGEST and code.isascii() else []:
        if each.wrap().validate_code(code):
            return each
    raise Refused(WRONG)


def _by_passkey(person: User, sent: str) -> Authenticator:
    if len(sent) > LONGEST_KEY:
        raise Refused(WRONG_KEY)
    try:
        credential = json.loads(sent)
        webauthn.parse_authentication_response(credential)
        return webauthn.complete_authentication(person, credential)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ValidationError):
        raise Refused(WRONG_KEY) from None
