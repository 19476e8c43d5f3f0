import time


def out_(*a):
    open("/tmp/probe.out", "a").write(" ".join(map(str, a)) + "\n")


import pytest
from django.test import Client

from runs.models import Step
from tests.approvals import desk

pytestmark = pytest.mark.django_db
BASE = dict(
    account=1, amount="1.00", ratio=1.0, code="c", letter="l", tree={}, many=[], sure=True, level="low"
)
SHAPES = {
    "many 1-char": {**BASE, "many": ["a"] * 60000},
    "nested keys": {**BASE, "tree": {str(i): i for i in range(20000)}},
    "odd 250k": {**BASE, "letter": "\u200ba" * 60000},
    "odd many": {**BASE, "many": ["\u200b"] * 40000},
    "deep": {**BASE, "tree": {"a": [[[[[[[[{"b": [{}] * 3000}]]]]]]]]}},
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.timeout(400)
def test_big(people, name):
    r = desk.opened("approvals-filler", values=SHAPES[name])
    c = Client(raise_request_exception=False)
    c.force_login(people.ana)
    o = Client(raise_request_exception=False)
    o.force_login(people.olu)
    step = Step.objects.get(pk=r.step_id)
    d = r.revision.digest
    for who, p in (
        (c, f"/requests/{r.ref}"),
        (c, "/"),
        (c, "/inbox/pulse?v=1-x"),
        (c, f"/requests/{r.ref}/pulse?v=1"),
        (c, f"/requests/{r.ref}/edit"),
        (c, f"/runs/{r.run_id}/"),
        (c, "/runs/"),
        (o, f"/admin/runs/step/{step.pk}/change/"),
        (o, f"/admin/approvals/revision/{r.revision.pk}/change/"),
        (o, f"/admin/runs/run/{r.run_id}/change/"),
    ):
        t = time.process_time()
        a = who.get(p)
        out_(f"{name:14} {p[:30]:32} {a.status_code} {len(a.content):>10,} {time.process_time() - t:6.2f}s")
    e = {
        f"f-{k}": (v if isinstance(v, str) else __import__("json").dumps(v)) for k, v in SHAPES[name].items()
    }
    t = time.process_time()
    a = c.post(f"/requests/{r.ref}/edit", {**e, "f-account": "2", "view_digest": d, "form_nonce": "x"})
    out_(f"{name:14} POST edit {a.status_code} {len(a.content):>10,} {time.process_time() - t:6.2f}s")
    t = time.process_time()
    a = c.post(
        f"/requests/{r.ref}/decide",
        {"decision": "reject", "reason": "x", "view_digest": d, "form_nonce": "x"},
    )
    out_(f"{name:14} POST reject {a.status_code} {time.process_time() - t:6.2f}s")
    for p in ("/history", a.headers.get("location", "/")):
        t = time.process_time()
        a = c.get(p)
        out_(f"{name:14} {p[:30]:32} {a.status_code} {len(a.content):>10,} {time.process_time() - t:6.2f}s")
