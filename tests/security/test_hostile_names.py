"""Markup and hidden characters in every name that somebody can choose, on every page that a walk reaches."""

from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from approvals import policies
from approvals.models import ApiKey, Rule
from runs import execution, holds, lifecycle
from runs.actors import Actor
from runs.models import Run
from tests.approvals import desk

pytestmark = pytest.mark.django_db

NAME = "x<zz-tag onload=a()>{{7*7}}\u202eevil\u200b"
HIDDEN = {"\u202e", "\u200b"}
MOST = 250  # pages a walk opens


class Words(HTMLParser):
    """Tags, and the text that is read: what stands in a form's fields is there to be sent back as it is."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.said: list[str] = []
        self.inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.inside = tag if tag in ("textarea", "option", "script") else self.inside
        self.links += [value or "" for name, value in attrs if (tag, name) == ("a", "href")]

    def handle_endtag(self, tag: str) -> None:
        self.inside = "" if tag == self.inside else self.inside

    def handle_data(self, data: str) -> None:
        if not self.inside:
            self.said.append(data)


@pytest.fixture
def named(people: SimpleNamespace) -> SimpleNamespace:
    """Everything is called NAME, and a run of each kind waits, was decided, was paused."""
    User.objects.filter(pk=people.ana.pk).update(first_name=NAME, last_name=NAME)
    User.objects.filter(pk=people.cyd.pk).update(first_name=NAME)
    Group.objects.filter(name="refunds").update(name=NAME)
    key, _ = ApiKey.objects.create_key(name=NAME[:50], owner=people.cyd)
    Rule.objects.filter(name="desk").update(name=NAME)
    policies.publish(Actor("person", "0", NAME, "admin"), why=NAME)
    for decided in ("", "approve", "reject"):
        run = submitted(key, people.cyd)
        execution.drive(run.pk)
        request = run.requests.get()
        if decided:
            desk.decide(request, User.objects.get(pk=people.ana.pk), decided, reason=NAME)
            execution.drive(run.pk)
    holds.pause(submitted(key, people.cyd).pk, actor=Actor("person", "5", NAME, "page"), why=NAME)
    return people


def submitted(key: ApiKey, owner: User) -> Run:
    labels = {NAME: NAME}
    asked = lifecycle.Submission(
        "approvals-desk", {"charge": NAME}, labels, on_behalf_of=NAME, owner_id=str(owner.pk)
    )
    return lifecycle.submit(asked, actor=Actor("key", key.prefix, NAME, "api"))[0]


def walk(browser: Client, *starts: str) -> dict[str, str]:
    """Pages by address, in the order in which links lead to them."""
    found: dict[str, str] = {}
    waiting = list(starts)
    while waiting and len(found) < MOST:
        path = waiting.pop(0)
        if path in found:
            continue
        answer = browser.get(path, follow=True)
        found[path] = answer.content.decode() if "html" in answer["Content-Type"] else ""
        links = [link for link in Words(found[path]).links if link.startswith(("/", "?"))]
        waiting += [link if link[0] == "/" else path.partition("?")[0] + link for link in links]
        waiting = [
            link.partition("#")[0] for link in waiting if not link.startswith(("/static", "/admin/rq"))
        ]
    return found


@pytest.mark.parametrize("who", ["ana", "olu", "dot"])
def test_names_are_words_and_what_is_hidden_in_them_is_shown(named: SimpleNamespace, who: str) -> None:
    browser = Client()
    browser.force_login(User.objects.get(username=who))
    pages = walk(browser, "/", "/runs/", "/history", "/admin/")
    assert len(pages) > 10
    assert sum("zz-tag" in page for page in pages.values()) > 5
    assert all("{{7*7}}" in page for page in pages.values() if "zz-tag" in page)
    for path, page in pages.items():
        words = Words(page)
        assert "zz-tag" not in words.tags, path
        assert "onload" not in words.attributes, path
        if who == "ana":  # the admin's lists are Django's, and hold names that operators chose
            assert [each for each in words.said if HIDDEN & set(each)] == [], path
