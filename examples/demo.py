"""The demo's people, the submitter's key and the first rules, made on the first start and never again.

`prepare` is safe to call at every start and side by side: what somebody changed or removed since stays so.
The one password of all five people and the key are random. They stand in two files that only their owner
reads, `demo.txt` (what `./run` prints) and `demo.key` (for curl), and in the database only as hashes.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal import auth as totp
from allauth.mfa.utils import decrypt
from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, User
from django.db import transaction

from approvals import people, policies
from approvals.models import ApiKey
from examples.policies import SEED

REVIEWING = ("refunds", "marketing", "purchasing", settings.FALLBACK_REVIEWERS)
SUBMITTER = "eli@example.com"
PERIOD = 30  # seconds for which an authenticator app shows a code
PASSWORD = re.compile(r"^Password\s+(\S+)$", re.MULTILINE)
_WORDS = (
    "amber anchor apple autumn basil beacon birch bottle breeze brook button cactus candle canyon cedar "
    "cherry cliff clover cobalt copper coral cotton crane daisy delta dune eagle ember falcon fennel fern "
    "fiddle flint forest garden ginger granite harbor hazel heron honey indigo iris island ivory jasmine "
    "juniper kettle lagoon lantern laurel lemon lilac linen lotus maple marble meadow mint mosaic nectar "
    "oasis ocean olive onyx opal orchard otter paper pebble pepper pine plum poppy prairie quartz quill "
    "raven reed river robin saffron sage sandal scarlet shell silver slate sorrel sparrow spruce summit "
    "tango thyme timber topaz tulip valley velvet violet walnut willow winter yarrow zephyr"
)
WORDS = _WORDS.split()


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody of the demo: `role` is what `demo.txt` says of them."""

    email: str
    name: str
    role: str
    groups: tuple[str, ...] = ()


PEOPLE = (
    Person("ana@example.com", "Ana Abbott", "reviewer: the inbox", REVIEWING),
    Person("ben@example.com", "Ben Brandt", "reviewer too", REVIEWING),
    Person(
        "cyd@example.com",
        "Cyd Calder",
        "operator and policy editor: /admin/",
        (settings.OPERATORS, settings.POLICY_EDITORS),
    ),
    Person("dot@example.com", "Dot Dorsey", "auditor: sees all, changes nothing", (settings.AUDITORS,)),
    Person(SUBMITTER, "Eli Ennis", "submitter: owns the key, reviews nothing"),
)


def prepare() -> bool:
    """Makes what a first start needs and writes the notes. False: it was made before, and nothing changed."""
    with transaction.atomic():
        policies.seed(SEED)  # locks the policy's row: of two starts side by side the second waits here
        first = not User.objects.filter(username__in=[person.email for person in PEOPLE]).exists()
        password = _people() if first else _told_before()
        if first:
            _write(key_file(), _key() + "\n")
        _write(notes(), _notes(password))  # last, so that a folder that cannot be written undoes the rest
    return first


def code(name: str) -> tuple[str, int]:
    """A code of a demo person's authenticator app, and for how many seconds it is the current one.

    Who has none gets one now: from then on their sign-in asks for a code as well. Raises LookupError.
    """
    found = [person.email for person in PEOPLE if name in (person.email, person.email.partition("@")[0])]
    user = User.objects.filter(username__in=found).first()
    if user is None:
        raise LookupError(name)
    made = Authenticator.objects.filter(user=user, type=Authenticator.Type.TOTP).first()
    if made is None:
        made = totp.TOTP.activate(user, totp.generate_totp_secret()).instance
    counter, since = divmod(int(time.time()), PERIOD)
    value = totp.hotp_value(decrypt(made.data["secret"]), counter)
    return totp.format_hotp_value(value), PERIOD - since


def notes() -> Path:
    """What `./run` prints when it is ready."""
    return Path(settings.VAR_DIR) / "demo.txt"


def key_file() -> Path:
    """The submitter's key and nothing else."""
    return Path(settings.VAR_DIR) / "demo.key"


def _people() -> str:
    password = "-".join([*(secrets.choice(WORDS) for _ in range(3)), str(secrets.randbelow(900) + 100)])
    hashed = make_password(password)  # once: it is slow on purpose
    for person in PEOPLE:
        first_name, _, last_name = person.name.partition(" ")
        user = User(username=person.email, email=person.email, first_name=first_name, last_name=last_name)
        user.password = hashed
        user.save(force_insert=True)
        user.groups.set([Group.objects.get_or_create(name=name)[0] for name in person.groups])
        people.settle_staff(user)
        EmailAddress.objects.create(user=user, email=person.email, verified=True, primary=True)
    return password


def _key() -> str:
    owner = User.objects.get(username=SUBMITTER)
    _, key = ApiKey.objects.create_key(name="Lumen & Oak, help desk", owner=owner)
    return str(key)


def _told_before() -> str:
    """The password as the notes have it; empty when they are gone or say nothing of it."""
    try:
        found = PASSWORD.search(notes().read_text())
    except FileNotFoundError:
        return ""
    return found.group(1) if found else ""


def _notes(password: str) -> str:
    who = [f"{person.email:<18} {person.role}" for person in PEOPLE]
    return "\n".join(["Sign in as", *who, "", *_about_password(password), "", *_to_try()]) + "\n"


def _about_password(password: str) -> list[str]:
    if password:
        return [f"Password           {password}", "                   the same for all five"]
    return [
        "The password was kept in this file, which was removed. A new one is set by",
        f"./run changepassword {PEOPLE[0].email}",
    ]


def _to_try() -> list[str]:
    start = [
        "Start a run, then decide it as Ana:",
        "./run submit refund-desk ticket=5512",
    ]
    if not key_file().exists():
        return [*start, "", f"{short(key_file())} was removed; the admin issues another key."]
    return [
        *start,
        "or by REST:",
        f"curl {settings.BASE_URL}/api/v1/runs -H 'Content-Type: application/json' \\",
        f"     -H \"Authorization: Bearer $(cat '{short(key_file())}')\" \\",
        '     -d \'{"agent": "refund-desk", "input": {"ticket": 5601}}\'',
        "Other tickets, a mailing, a purchase: examples/README.md",
        "High risk (R3) asks for a code of your second factor: ./run demo code ana",
    ]


def short(path: Path) -> str:
    return str(path.relative_to(settings.BASE_DIR) if path.is_relative_to(settings.BASE_DIR) else path)


def _write(path: Path, text: str) -> None:
    """Whole or not at all, for its owner alone; the same text again is left as it lies."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    partial.rename(path)
