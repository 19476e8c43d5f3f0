"""`invite ADDRESS --group operators`: how an installation comes by its first operator.

The same verb as the admin's. The account has no password: the mail has the link to choose one.
"""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from approvals import accounts


class Command(BaseCommand):
    help = "Makes an account and mails the link to choose a password."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("address", help="the e-mail address")
        parser.add_argument("--name", default="", help="first name, then the rest")
        parser.add_argument("--group", action="append", default=[], metavar="NAME", help="may be repeated")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with transaction.atomic():
                groups = [_group(name) for name in options["group"]]
                user = accounts.invite(email=options["address"], name=options["name"], groups=groups)
        except ValidationError as refused:
            raise CommandError(" ".join(refused.messages)) from None
        self.stdout.write(f"{user.email} is invited by mail")


def _group(name: str) -> Group:
    """Those the settings name are made where they are missing; a typo makes none."""
    known = {settings.OPERATORS, settings.POLICY_EDITORS, settings.AUDITORS, settings.FALLBACK_REVIEWERS}
    if name in known:
        return Group.objects.get_or_create(name=name)[0]
    found = Group.objects.filter(name=name).first()
    if found is None:
        names = sorted(known | set(Group.objects.values_list("name", flat=True)))
        raise CommandError(f"no group is called {name!r}; there are: {', '.join(names)}")
    return found
