"""Before and after the children: ports, the question whether the web answers, the environment they get."""

import socket
import stat

import pytest

from config import environment, up
from config.folders import CannotStart

pytestmark = pytest.mark.integration  # opens doors


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def test_taken_port_is_one_clear_line(listener, monkeypatch):
    monkeypatch.setattr(up, "PORT_PATIENCE", 0.0)
    port = listener.getsockname()[1]
    with (
        pytest.raises(CannotStart, match=f"^Port {port} is taken; try --port {port + 1}.$"),
        up._doors("127.0.0.1", port),
    ):
        pass


@pytest.mark.parametrize("port", ["0", "65536", "-1", "many"])
def test_port_that_is_none_is_refused_and_says_what_one_is(port, capsys):
    with pytest.raises(SystemExit):
        up.main([f"--port={port}"])
    assert capsys.readouterr().err.endswith(
        f"argument --port: '{port}': a port is a number from 1 to 65535\n"
    )


def test_workers_that_cannot_be_are_refused(capsys):
    with pytest.raises(SystemExit):
        up.main(["--workers=-1"])
    assert capsys.readouterr().err.endswith("argument --workers: '-1': a number from 0 to 64\n")


def test_doors_of_localhost_are_open_and_closed_afterwards():
    port = up._free_port(0)
    with up._doors("localhost", port) as doors:
        assert {door.getsockname()[1] for door in doors} == {port}
        socket.create_connection(("127.0.0.1", port)).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_web_that_answers_anything_but_200_is_asked_again(listener):
    answer = up.Answer(listener, "http://localhost:1234")
    assert not answer()
    _reply(listener, b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
    while answer._line is not None:
        assert not answer()
    while answer._line is None:
        assert not answer()
    asked = _reply(listener, b"HTTP/1.1 200 OK\r\n\r\n")
    assert asked.startswith(b"GET /healthz HTTP/1.1\r\nHost: localhost:1234\r\n")
    while not answer():  # pytest's time-out ends it
        pass


def test_port_wished_for_is_taken_where_it_is_free(listener):
    taken = listener.getsockname()[1]
    assert up._free_port(taken) != taken


def test_outside_service_keeps_its_file_where_the_runs_are(tmp_path):
    assert up._gateway(8900, {"VAR_DIR": str(tmp_path)}).command[-2:] == (
        "--db",
        f"{tmp_path}/gateway.sqlite3",
    )


def test_environment_drops_what_is_about_another_server(tmp_path, monkeypatch):
    monkeypatch.delenv("DATABASE_URL")
    monkeypatch.setenv("PGHOST", "elsewhere")
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    made = environment.make(tmp_path / "var")
    assert "PGHOST" not in made
    assert (made["TZ"], made["PYTHONHASHSEED"]) == ("UTC", "0")


def test_environment_keeps_it_where_the_user_s_own_server_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql:///mine")
    monkeypatch.setenv("PGHOST", "elsewhere")
    assert environment.make(tmp_path / "var")["PGHOST"] == "elsewhere"


def test_secret_key_is_made_once_and_nobody_else_s(tmp_path, monkeypatch):
    monkeypatch.delenv("SECRET_KEY", raising=False)
    first = environment.make(tmp_path / "var")["SECRET_KEY"]
    assert len(first) >= 50
    assert environment.make(tmp_path / "var")["SECRET_KEY"] == first
    assert stat.S_IMODE((tmp_path / "var" / "secret_key").stat().st_mode) == 0o600


def test_secret_key_is_not_made_up_where_others_must_share_it(tmp_path, monkeypatch):
    monkeypatch.delenv("SECRET_KEY", raising=False)
    monkeypatch.setenv("BASE_URL", "https://abeyance.example.org")
    assert "SECRET_KEY" not in environment.make(tmp_path / "var")


@pytest.mark.parametrize(
    ("given", "on"),
    [
        ({}, True),
        ({"BASE_URL": "http://localhost:9000"}, True),
        ({"BASE_URL": "https://abeyance.example.org"}, False),
        ({"BASE_URL": "https://abeyance.example.org", "DEMO": "1"}, True),
        ({"DEMO": "false"}, False),
    ],
)
def test_demo_is_off_unless_asked_for_where_it_is_not_local(given, on):
    assert environment.demo(given) is on


def test_running_addresses_are_found_by_other_commands_and_gone_afterwards(tmp_path, monkeypatch):
    monkeypatch.delenv("DATABASE_URL")
    monkeypatch.setenv("REDIS_URL", "redis://:password@elsewhere/0")
    started = {
        "DATABASE_URL": "postgresql://postgres@/abeyance?host=/s",
        "REDIS_URL": "redis://:password@elsewhere/0",
    }
    with environment.published(tmp_path, started):
        assert "password" not in (tmp_path / "up.json").read_text()
        mine = {"REDIS_URL": started["REDIS_URL"]}
        environment.join(tmp_path, mine, "./run up")
        assert mine == started
        monkeypatch.delenv("REDIS_URL")
        with pytest.raises(CannotStart, match="started with REDIS_URL; set it here too"):
            environment.join(tmp_path, {}, "./run up")
    assert not (tmp_path / "up.json").exists()


def test_other_commands_know_the_agents_and_the_site_that_run(tmp_path, monkeypatch):
    """`./run submit` from another shell: what was set for `./run` alone counts there too."""
    for name in ("DATABASE_URL", "REDIS_URL", "SECRET_KEY", "EMAIL_URL"):
        monkeypatch.delenv(name, raising=False)
    started = {
        "AGENTS": "examples.agents,shop.agents",
        "BASE_URL": "https://abeyance.example.org",
        "DEMO": "1",
    }
    for name, value in started.items():
        monkeypatch.setenv(name, value)
    with environment.published(tmp_path, started):
        mine: dict[str, str] = {"AGENTS": "mine.agents"}
        environment.join(tmp_path, mine, "./run up")
    assert mine == started | {"AGENTS": "mine.agents"}


@pytest.mark.parametrize("name", ["SECRET_KEY", "EMAIL_URL"])
def test_secret_that_was_set_outside_is_asked_for_and_not_made_up(tmp_path, monkeypatch, name):
    """Else an invitation's link would not work, or its mail would stay here in a file."""
    for each in ("DATABASE_URL", "REDIS_URL", "SECRET_KEY", "EMAIL_URL"):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, "smtp://user:password@mail")
    with environment.published(tmp_path, {}):
        monkeypatch.delenv(name)
        with pytest.raises(CannotStart, match=f"started with {name}; set it here too"):
            environment.join(tmp_path, {"SECRET_KEY": "made up"}, "./run up")


def _reply(listener, words):
    line, _ = listener.accept()
    with line:
        asked = line.recv(1000)
        line.sendall(words)
    return asked
