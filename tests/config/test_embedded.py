"""The embedded engines, started for real: addresses, one starter a home, leftovers, data that stays."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg
import pytest
import redis
from psycopg.conninfo import conninfo_to_dict
from redis.connection import parse_url

from config import children, embedded, folders
from config.folders import CannotStart

pytestmark = pytest.mark.integration  # starts processes


@pytest.fixture
def home():
    """Short, and open to PostgreSQL's account where root runs the tests."""
    path = Path(tempfile.mkdtemp(prefix="Abeyance-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


def engines(home, environ=None):
    return embedded.wanted(home, environ or {}, durable=False)


def answer(url):
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT current_database(), current_setting('server_version')").fetchone()


def test_database_address_is_read_alike_by_psycopg(home):
    postgres, _ = engines(home)
    said = conninfo_to_dict(postgres.url())
    assert said == {"host": str(home / "sockets" / "pg"), "user": "postgres", "dbname": "abeyance"}


def test_queue_address_is_read_by_redis(home):
    _, valkey = engines(home)
    assert parse_url(valkey.url())["path"] == str(home / "sockets" / "valkey.sock")
    assert parse_url(valkey.url())["db"] == 0


@pytest.mark.parametrize(
    ("given", "started"),
    [
        ({}, ["DATABASE_URL", "REDIS_URL"]),
        ({"DATABASE_URL": "x"}, ["REDIS_URL"]),
        ({"REDIS_URL": "x"}, ["DATABASE_URL"]),
        ({"DATABASE_URL": "x", "REDIS_URL": "x"}, []),
        ({"DATABASE_URL": "", "REDIS_URL": ""}, ["DATABASE_URL", "REDIS_URL"]),
    ],
)
def test_only_what_the_environment_does_not_name_is_started(home, given, started):
    assert [engine.variable for engine in engines(home, given)] == started


def test_home_is_held_by_one_and_says_by_whom(home):
    with (
        embedded.held(home, "./run up"),
        pytest.raises(embedded.Busy, match=f"./run up .process {os.getpid()}."),
    ):
        enter(embedded.held(home, "me"))
    with embedded.held(home, "somebody else"):
        pass


def enter(context):
    with context:
        pass


def test_error_inside_a_held_home_is_not_taken_for_a_busy_one(home):
    with pytest.raises(BlockingIOError), embedded.held(home, "./run up"):
        raise BlockingIOError


def test_engines_run_and_their_data_stays(home):
    with embedded.running(home, engines(home)) as addresses:
        database, version = answer(addresses["DATABASE_URL"])
        assert (database, version.split(".")[0]) == ("abeyance", "18")
        with psycopg.connect(addresses["DATABASE_URL"]) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS n")
        with redis.Redis.from_url(addresses["REDIS_URL"]) as queue:
            queue.set("kept", "7")
    assert not [path for path in (home / "sockets").rglob("*") if path.is_socket()]
    with embedded.running(home, engines(home)) as addresses:
        with psycopg.connect(addresses["DATABASE_URL"]) as connection:
            assert connection.execute("SELECT n FROM kept").fetchone() == (7,)
        with redis.Redis.from_url(addresses["REDIS_URL"]) as queue:
            assert queue.get("kept") == b"7"
    assert "starting up" not in (home / "engines.log").read_text()  # nobody asked before it was ready


def test_servers_that_outlived_their_starter_are_ended(home):
    for engine in engines(home):
        engine.prepare()
        process = children.start(engine.spec(), subprocess.DEVNULL)
        until(engine.ready)
        engine.prepare()
        until(lambda process=process: process.poll() is not None)


def test_stale_pidfile_that_names_an_innocent_process_is_removed(home):
    postgres, _ = engines(home)
    postgres.prepare()
    innocent = subprocess.Popen(["sleep", "60"])
    try:
        (postgres.data / "postmaster.pid").write_text(f"{innocent.pid}\n{postgres.data}\n")
        postgres.prepare()
        assert not (postgres.data / "postmaster.pid").exists()
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


def test_first_start_that_was_cut_off_is_made_again(home):
    postgres, _ = engines(home)
    (home / "postgres.new" / "half").mkdir(parents=True)
    postgres.prepare()
    assert (postgres.data / "PG_VERSION").read_text() == "18\n"
    assert not (home / "postgres.new").exists()


def test_data_of_another_version_is_refused(home):
    postgres, _ = engines(home)
    folders.make(postgres.data, 0o700)
    (postgres.data / "PG_VERSION").write_text("17\n")
    with pytest.raises(CannotStart, match="PostgreSQL 17"):
        postgres.prepare()


def test_engine_that_does_not_start_says_where_to_read_why(home):
    postgres, _ = engines(home)
    postgres.prepare()
    (postgres.data / "postgresql.conf").write_text("no_such_setting = 1\n")
    with pytest.raises(CannotStart, match=r"engines\.log"):
        enter(embedded.running(home, [postgres]))
    assert "contains errors" in (home / "engines.log").read_text()


def test_servers_end_with_a_starter_that_is_killed(home):
    if not Path("/proc/self").exists():
        pytest.skip("only Linux signals orphans")
    code = (
        "import sys, time; from pathlib import Path; from config import embedded\n"
        "home = Path(sys.argv[1])\n"
        "with embedded.running(home, embedded.wanted(home, {}, durable=False)):\n"
        "    print('up', flush=True); time.sleep(60)\n"
    )
    starter = subprocess.Popen([os.sys.executable, "-c", code, str(home)], stdout=subprocess.PIPE)
    assert starter.stdout.readline() == b"up\n"
    pids = [
        int((home / name).read_text().split()[0]) for name in ("postgres/postmaster.pid", "valkey/valkey.pid")
    ]
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    starter.stdout.close()
    for pid in pids:
        until(lambda pid=pid: not embedded._alive(pid))


def until(done):
    while not done():  # pytest's time-out ends it
        time.sleep(0.02)
