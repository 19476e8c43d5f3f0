"""The demo's people and key: made once, whatever happens to them afterwards stays."""

import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.test import Client

from approvals import policies, reviewers, rights
from approvals.exceptions import ApprovalsError
from approvals.models import ApiKey, PolicyVersion, Request, policy
from examples import demo, situations
from examples.gateway.running import RunningGateway
from runs import execution, lifecycle
from runs.actors import Actor
from runs.models import Hold
from tests.conftest import ROOT

pytestmark = pytest.mark.django_db

NAMES = ["ana", "ben", "cyd", "dot", "eli"]


@pytest.fixture(autouse=True)
def home(settings: Any, tmp_path: Path) -> Path:
    settings.VAR_DIR = tmp_path / "var"
    fast = "django.contrib.auth.hashers.MD5PasswordHasher"
    settings.PASSWORD_HASHERS = [fast, *settings.PASSWORD_HASHERS]  # the usual one is slow on purpose
    return tmp_path / "var"


@pytest.fixture
def gateway(tmp_path: Path, settings: Any) -> Iterator[None]:
    running = RunningGateway(tmp_path / "gateway.sqlite3")
    settings.GATEWAY_URL = running.url
    yield
    running.stop()


def person(name: str) -> User:
    return User.objects.get(email=f"{name}@example.com")


def password() -> str:
    return re.search(r"^Password +(\S+)$", demo.notes().read_text(), re.MULTILINE).group(1)  # type: ignore[union-attr]


def everything() -> list[Any]:
    """What a start could have changed."""
    rows: list[Any] = [
        list(User.objects.order_by("pk").values()),
        list(User.groups.through.objects.order_by("pk").values()),
        list(Group.objects.order_by("pk").values()),
        list(EmailAddress.objects.order_by("pk").values()),
        list(ApiKey.objects.order_by("pk").values()),
        list(policy.Rule.objects.order_by("pk").values()),
        list(PolicyVersion.objects.order_by("pk").values()),
    ]
    return rows + [(path.read_text(), path.stat().st_mtime_ns) for path in (demo.notes(), demo.key_file())]


def test_first_start_makes_people_with_their_rights() -> None:
    assert demo.prepare() is True
    assert list(User.objects.order_by("email").values_list("email", flat=True)) == [
        f"{name}@example.com" for name in NAMES
    ]
    groups = {name: sorted(rights.group_names(person(name))) for name in NAMES}
    assert groups == {
        "ana": ["marketing", "purchasing", "refunds", "reviewers"],
        "ben": ["marketing", "purchasing", "refunds", "reviewers"],
        "cyd": ["operators", "policy editors"],
        "dot": ["auditors"],
        "eli": [],
    }
    assert [name for name in NAMES if person(name).is_staff] == ["cyd", "dot"]
    assert not User.objects.filter(is_superuser=True).exists()


def test_first_start_publishes_the_rules() -> None:
    demo.prepare()
    assert policies.version() == 1
    assert policy.Rule.objects.count() == len(demo.SEED)


@pytest.mark.parametrize("name", NAMES)
def test_everybody_signs_in_with_the_password_of_the_notes(client: Client, name: str) -> None:
    demo.prepare()
    form = {"login": f"{name}@example.com", "password": password()}
    answer = client.post("/accounts/login/", form)
    assert (answer.status_code, client.session["_auth_user_id"]) == (302, str(person(name).pk))


def test_notes_and_key_are_their_owners_alone() -> None:
    demo.prepare()
    for path in (demo.notes(), demo.key_file()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_secret_is_kept_in_clear() -> None:
    demo.prepare()
    rows = repr(everything()[:-2])
    assert password() not in rows
    assert demo.key_file().read_text().strip().partition(".")[2] not in rows


def test_two_installations_have_two_passwords() -> None:
    demo.prepare()
    first = password()
    ApiKey.objects.all().delete()
    User.objects.all().delete()
    demo.prepare()
    assert password() != first


def test_the_key_is_a_submitters_who_reviews_nothing() -> None:
    demo.prepare()
    key = ApiKey.objects.get_from_key(demo.key_file().read_text().strip())
    assert (key.owner, key.revoked, key.expiry_date) == (person("eli"), False, None)
    assert not reviewers.assigned_to(key.owner).exists()


def test_notes_name_the_people_and_what_to_try(settings: Any) -> None:
    settings.BASE_URL = "http://localhost:8123"
    demo.prepare()
    text = demo.notes().read_text()
    assert all(f"{name}@example.com" in text for name in NAMES)
    assert "./run submit refund-desk ticket=5512" in text
    assert "curl http://localhost:8123/api/v1/runs" in text
    assert str(demo.key_file()) in text


def test_second_start_changes_nothing() -> None:
    demo.prepare()
    before = everything()
    assert demo.prepare() is False
    assert everything() == before


def test_second_start_brings_nothing_back() -> None:
    """Who was removed, renamed, regrouped or given another password stays so, and so do the rules."""
    demo.prepare()
    person("ben").delete()
    ana = person("ana")
    ana.set_password("another one, entirely")
    ana.save(update_fields=["password"])
    ana.groups.clear()
    ApiKey.objects.update(revoked=True)
    policy.Rule.objects.first().delete()  # type: ignore[union-attr]
    before = everything()
    demo.prepare()
    assert everything() == before


def test_another_port_is_in_the_notes_at_the_next_start(settings: Any) -> None:
    demo.prepare()
    first, settings.BASE_URL = password(), "http://localhost:9000"
    demo.prepare()
    assert password() == first
    assert "curl http://localhost:9000/api/v1/runs" in demo.notes().read_text()


def test_lost_notes_say_how_to_set_a_password() -> None:
    demo.prepare()
    demo.notes().unlink()
    demo.prepare()
    text = demo.notes().read_text()
    assert "./run changepassword ana@example.com" in text
    assert "Password  " not in text
    assert stat.S_IMODE(demo.notes().stat().st_mode) == 0o600


def test_a_lost_key_is_not_offered() -> None:
    demo.prepare()
    demo.key_file().unlink()
    demo.prepare()
    assert "curl" not in demo.notes().read_text()
    assert ApiKey.objects.count() == 1


def test_notes_that_cannot_be_written_undo_the_rest(home: Path) -> None:
    home.write_text("a file where the folder should be")
    with pytest.raises(OSError):
        demo.prepare()
    assert (User.objects.count(), policies.version()) == (0, 0)


def test_the_command_says_what_it_did() -> None:
    out = StringIO()
    call_command("demo", stdout=out)
    call_command("demo", stdout=out)
    assert out.getvalue() == "The demo's people are made\nThe demo's people were made before\n"


def test_ana_and_ben_decide_what_elis_key_starts(gateway: None) -> None:
    demo.prepare()
    key = ApiKey.objects.get_from_key(demo.key_file().read_text().strip())
    asked = lifecycle.Submission("refund-desk", {"ticket": 5512}, {}, owner_id=str(key.owner_id))
    run, _ = lifecycle.submit(asked, actor=Actor("key", key.prefix, key.name, "api"))
    execution.drive(run.pk)
    request = Request.objects.get(run=run)
    assert [each.email for each in reviewers.candidates(request)] == ["ana@example.com", "ben@example.com"]
    may = {name: reviewers.eligibility(person(name), request) for name in NAMES}
    assert [name for name in NAMES if may[name].decides] == ["ana", "ben"]
    assert [name for name in NAMES if may[name].sees] == ["ana", "ben", "cyd", "dot"]


def test_the_command_names_the_six_when_it_is_asked_for_another() -> None:
    with pytest.raises(CommandError, match=r"budget.*dependency.*credential.*doubt.*drift.*child"):
        call_command("demo", "nonsense")
    with pytest.raises(CommandError, match="Name one of: budget, dependency"):
        call_command("demo", "--go-on")


def test_a_drift_that_ana_may_not_approve_leaves_no_pause(gateway: None) -> None:
    demo.prepare()
    drift = situations.SITUATIONS["drift"]
    run, _ = lifecycle.submit(drift.arrange(), actor=situations.ACTOR)
    execution.drive(run.pk)
    person("ana").groups.clear()
    assert drift.meanwhile is not None
    with pytest.raises(ApprovalsError):
        drift.meanwhile(run)
    assert [hold.cause for hold in Hold.objects.open().filter(run=run)] == ["approval"]
    person("ana").delete()
    with pytest.raises(situations.NotReady, match=r"ana@example\.com"):
        drift.meanwhile(run)
    assert [hold.cause for hold in Hold.objects.open().filter(run=run)] == ["approval"]


def test_an_installation_from_before_gets_the_rules_a_demo_needs(gateway: None) -> None:
    """Asked for by name, so what a start never brings back is added; what stands is not touched."""
    demo.prepare()
    policy.Rule.objects.filter(tool="make_payout").delete()
    policy.Rule.objects.filter(tool="issue_refund").update(enabled=False)
    before = list(policy.Rule.objects.order_by("pk").values())
    policies.publish(situations.ACTOR)
    assert policies.supply(demo.SEED, actor=situations.ACTOR, why="a demo") is True
    assert list(policy.Rule.objects.order_by("pk").values())[: len(before)] == before
    ours = [rule for rule in demo.SEED if rule["tool"] == "make_payout"]
    added = policy.Rule.objects.order_by("pk")[len(before) :]
    assert [(rule.kind, rule.name) for rule in added] == [(rule["pass"], rule["name"]) for rule in ours]
    assert min(rule.order for rule in added) > max(rule["order"] for rule in before)
    assert policies.version() == 3
    assert policies.supply(demo.SEED, actor=situations.ACTOR, why="a demo") is False
    assert policies.version() == 3


def test_a_rule_of_that_name_for_another_tool_stays() -> None:
    demo.prepare()
    policy.Rule.objects.filter(tool="make_payout").update(tool="make_*")
    assert policies.supply(demo.SEED, actor=situations.ACTOR, why="a demo") is False


@pytest.mark.django_db(transaction=True)
def test_two_first_starts_side_by_side_make_the_people_once(child_env: dict[str, str]) -> None:
    command = [sys.executable, "manage.py", "demo"]
    both = [
        subprocess.Popen(command, cwd=ROOT, env=child_env, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = sorted(process.communicate(timeout=60)[0] for process in both)
    assert said == ["The demo's people are made\n", "The demo's people were made before\n"]
    assert [process.returncode for process in both] == [0, 0]
    assert (User.objects.count(), ApiKey.objects.count(), PolicyVersion.objects.count()) == (5, 1, 1)
    notes = (Path(child_env["VAR_DIR"]) / "demo.txt").read_text()
    told = re.search(r"^Password +(\S+)$", notes, re.MULTILINE)
    assert told
    assert person("ana").check_password(told.group(1))


@pytest.mark.parametrize("who", ["ana", "ana@example.com"])
def test_a_code_is_of_the_second_factor_that_is_set_up_for_it(who: str) -> None:
    """Sign-in takes no code before, and the secret lies sealed."""
    demo.prepare()
    said, again = (StringIO(), StringIO())
    call_command("demo", "code", who, stdout=said, stderr=StringIO())
    call_command("demo", "code", who, stdout=again, stderr=StringIO())
    [made] = Authenticator.objects.all()
    assert (made.user, made.type) == (person("ana"), "totp")
    assert made.wrap().validate_code(said.getvalue().strip())
    assert re.fullmatch(r"\d{6}\n", again.getvalue())


def test_a_code_for_nobody_or_outside_the_demo_is_refused(settings: Any) -> None:
    demo.prepare()
    with pytest.raises(CommandError, match="Nobody in the demo is called zoe"):
        call_command("demo", "code", "zoe")
    settings.DEMO = False
    with pytest.raises(CommandError, match="This is no demo"):
        call_command("demo", "code", "ana")
    assert Authenticator.objects.count() == 0
