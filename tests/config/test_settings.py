"""Settings as another environment would give them, in a process of its own; checks; mail."""

import json
import os
import stat
import subprocess
import sys
from email import message_from_bytes
from pathlib import Path

import pytest
from django.core.mail import EmailMessage, get_connection

from config import checks

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.integration  # starts processes


def settings_of(*names, **environ):
    code = (
        "import json, os; os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'config.settings')\n"
        "from django.conf import settings\n"
        f"print(json.dumps({{name: getattr(settings, name, None) for name in {names!r}}}, default=str))"
    )
    kept = {"PATH": os.environ["PATH"], "SECRET_KEY": "x"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=kept | environ, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def manage(*arguments, **environ):
    kept = {"PATH": os.environ["PATH"]}
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        env=kept | environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def test_all_that_is_wrong_is_said_at_once_without_a_traceback():
    done = manage("check", LEASE="soon", SLICE="thin", DATABASE_URL="nowhere")
    assert done.returncode == 1
    assert sorted(done.stderr.splitlines()) == [
        "  DATABASE_URL: Not a valid database URL.",
        "  LEASE: Not a valid number.",
        "  SLICE: Not a valid number.",
        "The environment is not right:",
    ]


def test_module_of_agents_that_is_not_there_is_named_without_a_traceback(tmp_path):
    """One that is there and lacks something itself says where, as Python does."""
    (tmp_path / "lacking.py").write_text("import nowhere_to_be_found\n")
    for module in ("examples.nope", "nope"):
        done = manage("check", AGENTS=f"examples.agents,{module}")
        said = f"The environment is not right:\n  AGENTS: there is no module {module!r}.\n"
        assert (done.returncode, done.stderr) == (1, said)
    done = manage("check", AGENTS="lacking", PYTHONPATH=str(tmp_path))
    assert "import nowhere_to_be_found" in done.stderr


def test_socket_folder_keeps_its_capitals():
    found = settings_of("DATABASES", DATABASE_URL="postgresql://postgres@/abeyance?host=/Var/Sockets/pg")
    assert found["DATABASES"]["default"]["HOST"] == "/Var/Sockets/pg"
    assert found["DATABASES"]["default"]["OPTIONS"] == {"prepare_threshold": 5}


def test_https_hardens_cookies_and_transport():
    found = settings_of(
        "SESSION_COOKIE_NAME",
        "SESSION_COOKIE_SECURE",
        "CSRF_COOKIE_NAME",
        "CSRF_COOKIE_SECURE",
        "SECURE_HSTS_SECONDS",
        "ALLOWED_HOSTS",
        "CSRF_TRUSTED_ORIGINS",
        BASE_URL="https://abeyance.example.org",
    )
    assert found == {
        "SESSION_COOKIE_NAME": "__Host-sessionid",
        "SESSION_COOKIE_SECURE": True,
        "CSRF_COOKIE_NAME": "__Host-csrftoken",
        "CSRF_COOKIE_SECURE": True,
        "SECURE_HSTS_SECONDS": 365 * 86400,
        "ALLOWED_HOSTS": ["abeyance.example.org"],
        "CSRF_TRUSTED_ORIGINS": ["https://abeyance.example.org"],
    }


def test_client_address_is_taken_from_the_proxy_where_there_is_one():
    """Else all sign-ins would come from one address, and one attacker could use up everybody's tries."""
    name = "ALLAUTH_TRUSTED_PROXY_COUNT"
    assert settings_of(name, BASE_URL="https://abeyance.example.org")[name] == 1
    assert settings_of(name, BASE_URL="https://abeyance.example.org", PROXIES="2")[name] == 2
    assert settings_of(name)[name] == 0


def test_demo_and_its_agents_are_off_where_it_is_not_local():
    assert settings_of("DEMO", "AGENTS", BASE_URL="https://abeyance.example.org") == {
        "DEMO": False,
        "AGENTS": [],
    }
    assert settings_of("DEMO", "AGENTS") == {"DEMO": True, "AGENTS": ["examples.agents"]}


def test_mail_goes_to_files_until_a_server_is_named():
    assert settings_of("EMAIL_BACKEND")["EMAIL_BACKEND"] == "config.mail.Files"
    found = settings_of(
        "EMAIL_BACKEND", "EMAIL_HOST", "EMAIL_PORT", EMAIL_URL="smtp://u:p@mail.example.org:587"
    )
    assert (found["EMAIL_HOST"], found["EMAIL_PORT"]) == ("mail.example.org", 587)
    assert found["EMAIL_BACKEND"] == "django.core.mail.backends.smtp.EmailBackend"


@pytest.mark.parametrize(
    ("environ", "identity"),
    [
        ({"BASE_URL": "https://abeyance.example.org"}, "abeyance.E001"),
        ({"BASE_URL": "localhost:8000", "SECRET_KEY": "x"}, "abeyance.E002"),
        ({"BASE_URL": "http://abeyance.example.org", "SECRET_KEY": "x"}, "abeyance.W001"),
        ({"DATABASE_URL": "sqlite:///x", "SECRET_KEY": "x"}, "abeyance.E003"),
        ({"REDIS_URL": "http://localhost", "SECRET_KEY": "x"}, "abeyance.E004"),
    ],
)
def test_misconfiguration_is_named(environ, identity):
    assert identity in manage("check", **environ).stderr


def test_settings_of_the_tests_have_nothing_to_complain_about():
    found = [message.id for check in ALL_CHECKS for message in check(None)]
    assert found == []


@pytest.mark.parametrize(
    ("check", "change", "expected"),
    [
        (checks.leases, {"LEASE": 0.0, "HEARTBEAT": 0.0}, ["abeyance.E005", "abeyance.E005"]),
        (checks.leases, {"LEASE": 15.0, "HEARTBEAT": 8.0}, ["abeyance.E006"]),
        (checks.agents, {"AGENTS": ["no.such.module"]}, ["abeyance.E007"]),
        (checks.demo, {"DEMO": True, "LOCAL": False}, ["abeyance.W002"]),
        (checks.leases, {"CHECKPOINT_EVERY": 0.0}, ["abeyance.E005"]),
        (checks.checkpoints, {"JOURNAL_CHECKPOINTS": "/no/such/file"}, ["abeyance.W003"]),
        (checks.log_format, {"LOG_FORMAT": "xml"}, ["abeyance.E008"]),
        (checks.debug, {"DEBUG": True, "LOCAL": False}, ["abeyance.E009"]),
    ],
)
def test_values_that_are_wrong_together_are_named(settings, check, change, expected):
    for name, value in change.items():
        setattr(settings, name, value)
    assert [message.id for message in check(None)] == expected


ALL_CHECKS = [
    checks.secret_key,
    checks.base_url,
    checks.engines,
    checks.leases,
    checks.agents,
    checks.debug,
    checks.demo,
    checks.checkpoints,
    checks.log_format,
]


def test_mail_is_a_file_of_its_owner_s(settings, tmp_path):
    settings.EMAIL_FILE_PATH = tmp_path / "mail"
    mail = EmailMessage("Something waits", "See https://example.org/ä", "a@example.org", ["b@example.org"])
    sent = get_connection("config.mail.Files").send_messages([mail, mail])
    files = sorted((tmp_path / "mail").iterdir())
    assert (sent, [path.suffix for path in files]) == (2, [".eml", ".eml"])
    assert stat.S_IMODE(files[0].stat().st_mode) == 0o600
    assert stat.S_IMODE(files[0].parent.stat().st_mode) == 0o700
    read = message_from_bytes(files[0].read_bytes())
    assert (read["To"], read["Subject"]) == ("b@example.org", "Something waits")
    assert read.get_payload(decode=True).decode().strip() == "See https://example.org/ä"
