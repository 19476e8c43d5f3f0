"""Asking for looks is not a way to make workers, or the services they look at, busy."""

from types import SimpleNamespace

import pytest
from django.test import Client
from pytest_django import DjangoCaptureOnCommitCallbacks

from approvals import jobs
from runs import queues
from runs.models import FactReading
from tests.approvals import desk

pytestmark = pytest.mark.django_db


def test_many_who_ask_get_one_look(
    people: SimpleNamespace, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    request = desk.opened()
    browser = Client()
    browser.force_login(people.ana)
    before = queues.length()
    for _ in range(20):
        with django_capture_on_commit_callbacks(execute=True):
            browser.post(f"/requests/{request.ref}/look")
    assert queues.length() - before == 1
    for _ in range(20):
        jobs.look(str(request.pk))
    assert FactReading.objects.filter(moment="request").values("look").distinct().count() == 1
    queues._bell().empty()
