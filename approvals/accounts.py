"""People's accounts: by invitation only, known by their e-mail address.

Owns what allauth asks of us: closed sign-up, where a sign-in may lead, how its mails look, how second
factors' secrets are kept. Links are built from `BASE_URL`, so that invitations work from a command, and
no request's Host header ends up in a mail. It says nothing of who may decide what.
"""

import base64
from collections.abc import Iterable
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.forms import default_token_generator
from allauth.account.models import EmailAddress
from allauth.account.utils import user_pk_to_url_str
from allauth.mfa.adapter import DefaultMFAAdapter
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from approvals import people


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # allauth has no types
    """`ACCOUNT_ADAPTER`."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def is_safe_url(self, url: str) -> bool:
        """Same-site paths only; an absolute address is refused even where it is our own."""
        return url.startswith("/") and url_has_allowed_host_and_scheme(url, allowed_hosts=set())

    def can_delete_email(self, email_address: EmailAddress) -> bool:
        """Never: runs and agents name people by their addresses, also by one they do not use any more."""
        return False

    def format_email_subject(self, subject: str) -> str:
        return subject

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        known = {"email": email, "base_url": settings.BASE_URL, "site_name": "Abeyance"}
        self.render_mail(template_prefix, email, {**known, **context}).send()

    def get_reset_password_from_key_url(self, key: str) -> str:
        uid, token = key.split("-", 1)
        path = reverse("account_reset_password_from_key", kwargs={"uidb36": uid, "key": token})
        return f"{settings.BASE_URL}{path}"


class MfaAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """`MFA_ADAPTER`: secrets of second factors are kept sealed with a key made from `SECRET_KEY`."""

    def encrypt(self, text: str) -> str:
        return _seal().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        return _seal().decrypt(encrypted_text.encode()).decode()


def _seal() -> Fernet:
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"abeyance.mfa.v1")
    return Fernet(base64.urlsafe_b64encode(derived.derive(settings.SECRET_KEY.encode())))


@transaction.atomic
def invite(
    *, email: str, name: str, groups: Iterable[Group] = (), request: HttpRequest | None = None
) -> User:
    """Make an account without a password and mail the link to choose one, once it is committed.

    Raises ValidationError for an address that is none or that somebody has already.
    """
    user = _new_user(email.strip().lower(), name.strip())
    user.groups.set(groups)
    people.settle_staff(user)
    EmailAddress.objects.create(user=user, email=user.email, verified=True, primary=True)
    transaction.on_commit(lambda: send_invitation(user, request=request))
    return user


def send_invitation(user: User, *, request: HttpRequest | None = None) -> None:
    """Mail the link to choose a password. The link dies when it is used, or with the next sign-in."""
    adapter = AccountAdapter(request)
    key = f"{user_pk_to_url_str(user)}-{default_token_generator.make_token(user)}"
    url = adapter.get_reset_password_from_key_url(key)
    adapter.send_mail("emails/invitation", user.email, {"user": user, "password_reset_url": url})


def _new_user(email: str, name: str) -> User:
    validate_email(email)
    if _is_taken(email):
        raise ValidationError("Somebody has an account with this e-mail address already.", code="taken")
    first, _, rest = name.partition(" ")
    user = User(username=email, email=email, first_name=first, last_name=rest.strip())
    user.set_unusable_password()
    user.full_clean()
    user.save(force_insert=True)
    return user


def _is_taken(email: str) -> bool:
    by_address = EmailAddress.objects.filter(email__iexact=email).exists()
    return by_address or User.objects.filter(email__iexact=email).exists()
