

def out_(*a):
    open("/tmp/probe.out", "a").write(" ".join(map(str, a)) + "\n")



import pytest
from django.test import Client
from django.urls import get_resolver

from tests.approvals import desk

pytestmark = pytest.mark.django_db


def cl(user):
    c = Client(raise_request_exception=False)
    c.force_login(user)
    return c


def test_nul(people):
    r = desk.opened()
    desk.decide(r, people.ana)
    c = cl(people.ana)
    o = cl(people.olu)
    out = []
    for who, client in (("ana", c), ("olu", o)):
        for path in [
            "/?q=%00&tier=%00&agent=%00",
            "/history?older=%00&scope=%00",
            "/inbox/pulse?v=%00",
            f"/requests/{r.ref}?x=%00",
            f"/requests/{r.ref}%00",
            f"/requests/{r.ref}/pulse?v=%00",
            "/runs/?agent=%00",
            "/runs/?status=%00",
            "/runs/?older=%00",
            f"/runs/{r.run_id}/?before=%00&gated=%00",
            "/runs/?agent=%ED%A0%80",
            "/?q=%ED%A0%80",
            "/accounts/login/?next=%00",
            "/accounts/login/?next=//evil.example",
            "/accounts/logout/?next=//evil.example",
            "/accounts/password/reset/key/%00-%00/",
            "/static/%00",
            "/static/../config/settings.py",
            "/static/..%2f..%2fconfig/settings.py",
            "/accounts/login/?next=/%0d%0aX: y",
        ]:
            a = client.get(path)
            if a.status_code >= 500:
                out.append((who, path, a.status_code))
    paths = []
    for m in (
        "runs/run",
        "runs/step",
        "runs/hold",
        "runs/snapshot",
        "runs/factreading",
        "runs/journalentry",
        "approvals/request",
        "approvals/revision",
        "approvals/decision",
        "approvals/permit",
        "approvals/notification",
        "approvals/rule",
        "approvals/policyversion",
        "approvals/apikey",
        "auth/user",
        "auth/group",
        "admin/logentry",
    ):
        for q in (
            "?q=%00",
            "?p=%00",
            "?o=%00",
            "?e=1",
            "?id=%00",
            "?id__exact=%00",
            "?pk__in=%00",
            "?q=%ED%A0%80",
            "?p=99999999999999999999",
            "?id__gt=99999999999999999999999999",
            "?all=",
            "?_popup=1",
            "?_to_field=password",
            "?effect=%00&state=%00&tier=%00&cause=%00&agent=%00",
            "?status=%00",
            "?status__exact=%00",
            "?name=%00",
            "?email=%00",
            "?stream__exact=%00",
            "?tool=%00",
            "?password__startswith=p",
            "?hashed_key__startswith=p",
            "?token__isnull=0",
            "?owner__password__startswith=p",
            "?user__password__startswith=p",
            "?run__token__isnull=0",
            "?request__run__token__isnull=0",
            "?prefix__startswith=a",
            "?groups__user__password__startswith=p",
            "?group__user__password__startswith=x",
            "?groups__id__exact=%00",
            "?reviewers__id__exact=99999999999999999999999",
            "?run__id__exact=1",
        ):
            a = o.get(f"/admin/{m}/{q}")
            if a.status_code >= 500:
                out.append((m, q, a.status_code))
            if a.status_code == 200 and ("password" in q or "hashed" in q or "token" in q or "prefix" in q):
                out.append((m, q, "ALLOWED"))
        for i in (
            "%00",
            "0",
            "99999999999999999999999",
            "abc",
            "_00",
            "1/history/",
            "%ED%A0%80",
            "1/do/pause/",
            "../x",
        ):
            a = o.get(f"/admin/{m}/{i}/change/")
            if a.status_code >= 500:
                out.append((m, i, a.status_code))
            a = o.get(f"/admin/{m}/{i}/history/")
            if a.status_code >= 500:
                out.append((m, i, "hist", a.status_code))
            a = o.get(f"/admin/{m}/{i}/do/pause/")
            if a.status_code >= 500:
                out.append((m, i, "do", a.status_code))
    for e in out:
        out_(e)
    assert not out


def test_post_nul(people):
    r = desk.opened()
    c = cl(people.ana)
    out = []
    d = r.revision.digest
    for data in [
        dict(decision="approve\0", view_digest=d),
        dict(decision="reject", reason="x\0", view_digest=d),
        dict(decision="approve", edited='{"a":"\\u0000"}', view_digest=d),
        dict(decision="approve", edited="\0", view_digest=d),
        dict(decision="approve", edited="[1]", view_digest=d),
        dict(decision="approve", edited="1" * 100000, view_digest=d),
        dict(decision="approve", edited="[" * 100000, view_digest=d),
        dict(decision="approve", edited='{"amount":"1e999999999","charge":"c"}', view_digest=d),
        dict(decision="approve", edited='{"amount":"NaN","charge":"c"}', view_digest=d),
        dict(decision="approve", edited='{"amount":"sNaN","charge":"c"}', view_digest=d),
        dict(decision="approve", edited='{"amount":"-0","charge":"c"}', view_digest=d),
        dict(decision="approve", edited='{"amount":"Infinity","charge":"c"}', view_digest=d),
        dict(decision="approve", edited='{"amount":1e400,"charge":"c"}', view_digest=d),
    ]:
        a = c.post(f"/requests/{r.ref}/decide", data)
        out_(
            data["decision"],
            str(data.get("edited"))[:40],
            a.status_code,
            desk.fresh(r).state,
            desk.fresh(r).revision.arguments[:80],
        )
    for data in [
        {"f-amount": "1e999999999", "f-charge": "c"},
        {"f-amount": "9" * 300000, "f-charge": "c"},
        {"f-amount": "\0", "f-charge": "\0"},
        {"f-amount": "1e9999", "f-charge": "c"},
    ]:
        a = c.post(
            f"/requests/{r.ref}/edit",
            {**data, "view_digest": desk.fresh(r).revision.digest, "form_nonce": "\0"},
        )
        out_("edit", {k: v[:20] for k, v in data.items()}, a.status_code)
    for p in (f"/runs/{r.run_id}/pause/", f"/runs/{r.run_id}/resume/", f"/requests/{r.ref}/look"):
        a = c.post(p, {"reason": "a\0b\ud800"})
        out_(p, a.status_code)
    for data in ({"login": "a\0@b.c", "password": "\0"}, {"login": "a" * 100000, "password": "b" * 1000000}):
        a = Client(raise_request_exception=False).post("/accounts/login/", data)
        out_("login", a.status_code)
    a = Client(raise_request_exception=False).post("/accounts/password/reset/", {"email": "a\0@b.c"})
    out_("reset", a.status_code)


def test_urls(people):
    from django.urls import URLResolver

    def walk(p, pre=""):
        for x in p:
            if isinstance(x, URLResolver):
                yield from walk(x.url_patterns, pre + str(x.pattern))
            else:
                yield pre + str(x.pattern), x.callback

    for path, cb in walk(get_resolver().url_patterns):
        out_(path, getattr(cb, "__name__", cb))
