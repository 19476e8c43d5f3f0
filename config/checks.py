"""Misconfigurations by name, each with what would be right; `./run check` and every start run them.

Only what `environs` cannot see for itself: values that are well-formed and wrong together.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from django.apps.config import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.core.checks import Warning as Doubt
from django.core.exceptions import ImproperlyConfigured

Check = Callable[..., list[CheckMessage]]


def _named(check: Callable[[], Iterator[CheckMessage]]) -> Check:
    def run(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
        return list(check())

    run.__name__ = check.__name__
    return register(run)


@_named
def secret_key() -> Iterator[CheckMessage]:
    if not settings.LOCAL and not _value("SECRET_KEY"):
        yield Error(
            "SECRET_KEY is not set.",
            hint="All processes on all hosts must share one: 50 random characters, kept out of the code.",
            id="abeyance.E001",
        )


@_named
def base_url() -> Iterator[CheckMessage]:
    parts = urlsplit(settings.BASE_URL)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path or parts.query:
        yield Error(
            f"BASE_URL is {settings.BASE_URL!r}, which is not the address of a site.",
            hint="Scheme, host and, where needed, port: https://abeyance.example.org",
            id="abeyance.E002",
        )
    elif not settings.LOCAL and parts.scheme != "https":
        yield Doubt(
            "BASE_URL is not https, so cookies travel in clear.",
            hint="Put a proxy that speaks TLS in front, and start BASE_URL with https://",
            id="abeyance.W001",
        )


@_named
def engines() -> Iterator[CheckMessage]:
    engine = settings.DATABASES["default"]["ENGINE"]
    if engine != "django.db.backends.postgresql":
        yield Error(
            f"DATABASE_URL names {engine.rsplit('.', 1)[-1]}, and only PostgreSQL will do.",
            hint="postgresql://user:password@host:5432/abeyance, or unset it to use the embedded one.",
            id="abeyance.E003",
        )
    if urlsplit(settings.REDIS_URL).scheme not in {"redis", "rediss", "unix"}:
        yield Error(
            f"REDIS_URL is {settings.REDIS_URL!r}, which is not the address of a Redis or Valkey.",
            hint="redis://host:6379/0, or unset it to use the embedded one.",
            id="abeyance.E004",
        )


@_named
def leases() -> Iterator[CheckMessage]:
    for name in (
        "LEASE",
        "HEARTBEAT",
        "SWEEP_EVERY",
        "SLICE",
        "FACT_TIMEOUT",
        "MAX_SUSPENDED",
        "CHECKPOINT_EVERY",
    ):
        if getattr(settings, name) <= 0:
            yield Error(f"{name} is not more than zero.", hint="It is in seconds.", id="abeyance.E005")
    if settings.HEARTBEAT * 2 > settings.LEASE:
        yield Error(
            f"HEARTBEAT ({settings.HEARTBEAT:g} s) is more than half of LEASE ({settings.LEASE:g} s).",
            hint="One late heartbeat would lose the run; a third is usual.",
            id="abeyance.E006",
        )


@_named
def agents() -> Iterator[CheckMessage]:
    for name in settings.AGENTS:
        if not _importable(name):
            yield Error(
                f"AGENTS names {name!r}, and there is no such module.",
                hint="Web and workers import the same comma-separated list of modules.",
                id="abeyance.E007",
            )


@_named
def demo() -> Iterator[CheckMessage]:
    if settings.DEMO and not settings.LOCAL:
        yield Doubt(
            "The demo is on, though BASE_URL is not local: its people have known passwords.",
            hint="Unset DEMO.",
            id="abeyance.W002",
        )


@_named
def debug() -> Iterator[CheckMessage]:
    if settings.DEBUG and not settings.LOCAL:
        yield Error(
            "DEBUG is on, though BASE_URL is not local: error pages would show settings and values to anybody.",
            hint="Unset DEBUG.",
            id="abeyance.E009",
        )


@_named
def checkpoints() -> Iterator[CheckMessage]:
    path = settings.JOURNAL_CHECKPOINTS
    if path and not os.access(path, os.W_OK):
        yield Doubt(
            f"JOURNAL_CHECKPOINTS is {path!r}, which is no file that can be added to here.",
            hint="Make an empty one; where no sweeper runs, it is enough that it can be read there.",
            id="abeyance.W003",
        )


@_named
def log_format() -> Iterator[CheckMessage]:
    if settings.LOG_FORMAT not in {"text", "json"}:
        yield Error(f"LOG_FORMAT is {settings.LOG_FORMAT!r}.", hint="text or json", id="abeyance.E008")


def _value(name: str) -> object:
    """A setting as it stands; Django raises when an empty SECRET_KEY is read in the usual way."""
    try:
        return getattr(settings, name)
    except ImproperlyConfigured:
        return None


def _importable(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
