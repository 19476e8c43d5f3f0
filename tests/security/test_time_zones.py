"""F41: instants are instants, whatever zone the machine or a person is in."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.test import Client

from approvals import notifications
from approvals.exceptions import Closed
from approvals.models import Request
from runs import clock, sweeper
from tests.approvals import desk

pytestmark = pytest.mark.django_db
NEW_YORK = ZoneInfo("America/New_York")
DAY = timedelta(days=1)


@pytest.fixture(params=["Asia/Kolkata", "America/New_York", "UTC"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The zone of the machine. Connections are told UTC by Django, whatever the server is set to."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    with connection.cursor() as cursor:
        cursor.execute("SHOW TIME ZONE")
        assert cursor.fetchone() == ("UTC",)
    yield request.param
    monkeypatch.undo()
    time.tzset()


def at(moment: datetime) -> None:
    """The clock shows this."""
    clock.shift(timedelta())
    clock.shift(moment - clock.now())


def opened() -> Request:
    desk.change_rule("desk", decide_within=int(DAY.total_seconds()))
    return desk.opened()


@pytest.mark.parametrize(
    "day", [datetime(2026, 10, 31, 13, tzinfo=NEW_YORK), datetime(2026, 3, 7, 13, tzinfo=NEW_YORK)]
)
def test_deadline_is_so_many_hours_later_over_a_change_of_the_clock(
    people: SimpleNamespace, zone: str, day: datetime
) -> None:
    """Both nights New York's clocks are put forward or back: the day after is 23 or 25 hours long there."""
    at(day.astimezone(UTC))
    request = opened()
    assert request.decide_by is not None
    assert abs(request.decide_by - request.opened_at - DAY) < timedelta(seconds=1)  # opened a moment later
    there = request.decide_by.astimezone(NEW_YORK)
    assert there.hour != 13


def test_page_mail_and_api_name_the_zone(people: SimpleNamespace, zone: str, site: Client) -> None:
    at(datetime(2026, 10, 31, 13, tzinfo=NEW_YORK).astimezone(UTC))
    request = opened()
    page = site.get(request.get_absolute_url()).content.decode()
    assert "1 Nov 2026, 17:00 UTC" in page
    assert 'datetime="2026-11-01T17:00:' in page
    row = request.notifications.get(person_id=str(people.ana.pk))
    assert "Decide by    Sun 1 Nov 2026, 17:00 UTC" in notifications.compose(row).body


@pytest.mark.parametrize(("late", "state"), [(-1, "open"), (1, "expired")])
def test_expires_at_the_same_instant_in_any_zone(
    people: SimpleNamespace, zone: str, late: int, state: str
) -> None:
    at(datetime(2026, 3, 7, 18, tzinfo=UTC))
    request = opened()
    assert request.decide_by is not None
    at(request.decide_by + timedelta(seconds=late))
    verb = sweeper._verbs["expire_holds"]
    for item in verb.find(clock.now()):
        verb.act(item)
    assert desk.fresh(request).state == state
    if state == "expired":
        with pytest.raises(Closed):
            desk.decide(request, people.ana)
    else:
        assert desk.decide(request, people.ana, verb="reject")


def test_connection_is_in_utc_whatever_the_server_or_the_role_is_set_to(people: SimpleNamespace) -> None:
    """Times travel without their zone and are read as UTC: the one thing that must not be is another zone there."""
    other = connection.copy("other")
    other.settings_dict["OPTIONS"] = {**other.settings_dict["OPTIONS"], "options": "-c TimeZone=Asia/Kolkata"}
    try:
        with other.cursor() as cursor:
            cursor.execute(
                "SELECT setting, reset_val, abeyance_now() FROM pg_settings WHERE name = 'TimeZone'"
            )
            setting, before, at = cursor.fetchone()
    finally:
        other.close()
    assert (setting, before) == ("UTC", "Asia/Kolkata")
    assert abs(at - clock.now()) < timedelta(seconds=60)
