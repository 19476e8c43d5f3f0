"""What tests of pages share: people by their groups, their browsers, and what no page of ours may contain."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

from django.contrib.auth.models import Group, User
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

POLICY = {
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "font-src 'self'",
    "connect-src 'self'",
    "form-action 'self'",
    "frame-src 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
    "object-src 'none'",
}


def person(name: str, *groups: str, **fields: Any) -> User:
    """An account; those who are in a group that enters the admin are staff, as `people` keeps it."""
    staff = bool({"operators", "policy editors", "auditors"} & set(groups))
    named = {"username": name, "email": f"{name}@example.org", "first_name": name.capitalize()}
    made = User.objects.create(**{**named, "is_staff": staff, **fields})
    made.groups.set([Group.objects.get_or_create(name=group)[0] for group in groups])
    return made


def browser(who: User) -> Client:
    client = Client()
    client.force_login(who)
    return client


def directives(response: HttpResponse) -> set[str]:
    return {part.strip() for part in response.headers["Content-Security-Policy"].split(";")}


def addresses(known: dict[str, str]) -> Iterator[str]:
    """Every address of the URLconf, its parts filled with what is known."""

    def walk(patterns: list[URLPattern | URLResolver], before: str) -> Iterator[str]:
        for found in patterns:
            part = re.sub(r"^\^|\\Z$|\$$|\\", "", str(found.pattern))
            part = re.sub(r"\(\?P<(\w+)>(?:[^()]|\([^()]*\))*\)", r"<\1>", part)
            if isinstance(found, URLResolver):
                yield from walk(found.url_patterns, before + part)
            else:
                yield before + re.sub(r"<(?:\w+:)?(\w+)>", lambda m: known.get(m[1], "1"), part)

    for path in walk(get_resolver().url_patterns, "/"):
        yield re.sub(r"\(.*?\)\??|\?$", "", path)


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.inline: list[str] = []
        self.text: list[str] = []
        self._skips = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        data = found.get("type") in ("application/json", "text/x-template")
        if tag == "style" or (tag == "script" and "src" not in found and not data):
            self.inline.append(tag)
        self.inline += [name for name in found if name == "style" or name.startswith("on")]
        self._skips += tag in ("script", "style")
        self.text.append(" " if tag == "br" else "")

    def handle_endtag(self, tag: str) -> None:
        self._skips -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._skips:
            self.text.append(data)


def _read(response: HttpResponse) -> _Page:
    page = _Page()
    page.feed(response.content.decode())
    return page


def inline(response: HttpResponse) -> list[str]:
    """Inline scripts, styles and handlers; none are allowed."""
    return _read(response).inline


def text(response: HttpResponse) -> str:
    """What a page says, with single spaces."""
    return " ".join("".join(_read(response).text).split())
