"""Where the engines' files may be: what fits into a socket's address, what root does in a closed clone."""

import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest

from config import folders
from config.folders import CannotStart

pytestmark = pytest.mark.integration  # starts processes

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")


@pytest.fixture
def somebody():
    return folders.account()


@pytest.fixture
def open_folder():
    """Under the temporary folder itself, because pytest's own are closed to other accounts."""
    path = Path(tempfile.mkdtemp(prefix="abeyance-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def test_socket_of_just_the_limit_fits():
    room = folders.SOCKET_LIMIT - len(folders.LONGEST_NAME) - len("//")
    assert folders.fits(Path("/" + "a" * room))
    assert not folders.fits(Path("/" + "a" * (room + 1)))


def test_length_is_counted_in_bytes_not_letters():
    assert not folders.fits(Path("/" + "ä" * 60))


@pytest.mark.parametrize("name", ["with space", "what?", "per%cent", "hash#", "ünï"])
def test_path_that_would_need_quoting_does_not_fit(name):
    assert not folders.fits(Path("/tmp") / name)


def test_sockets_are_in_the_home_where_that_fits(open_folder):
    folders.make_home(open_folder / "var", None)
    assert folders.sockets(open_folder / "var", None) == open_folder / "var" / "sockets"
    assert _mode(open_folder / "var" / "sockets") == 0o700


def test_sockets_of_a_long_path_are_in_a_temporary_folder_of_ours(open_folder):
    home = open_folder / ("long" * 30)
    folders.make_home(home, None)
    chosen = folders.sockets(home, None)
    try:
        assert chosen.parent == Path(tempfile.gettempdir())
        assert chosen == folders.sockets(home, None)
        assert (home / "sockets.where").read_text().strip() == str(chosen)
        assert chosen.stat().st_uid == os.geteuid()
    finally:
        chosen.rmdir()


def test_temporary_folder_that_somebody_took_first_is_not_used(open_folder, monkeypatch):
    monkeypatch.setattr(folders, "_temporary", lambda: [open_folder])
    home = open_folder / ("long" * 30)
    (open_folder / "elsewhere").mkdir()
    name = f"abeyance-{os.geteuid()}-{folders._key(home)}"
    (open_folder / name).symlink_to(open_folder / "elsewhere")
    with pytest.raises(CannotStart):
        folders.sockets(home, None)


def test_ordinary_user_keeps_data_in_the_home(tmp_path):
    assert folders.data(tmp_path, None) == tmp_path / "postgres"
    assert not (tmp_path / "postgres.where").exists()


@root_only
def test_root_keeps_data_in_the_home_where_it_can_be_reached(open_folder, somebody):
    folders.make_home(open_folder / "var", somebody)
    assert folders.data(open_folder / "var", somebody) == open_folder / "var" / "postgres"


@root_only
def test_root_in_a_closed_clone_keeps_data_outside_and_says_where(
    tmp_path, open_folder, somebody, monkeypatch
):
    monkeypatch.setattr(folders, "STATE", open_folder)
    before = _mode(tmp_path.parent)
    chosen = folders.data(tmp_path, somebody)
    assert chosen.is_relative_to(open_folder)
    assert (tmp_path / "postgres.where").read_text().strip() == str(chosen)
    assert folders.data(tmp_path, somebody) == chosen
    assert _mode(tmp_path.parent) == before


@root_only
def test_moved_clone_takes_its_data_along(tmp_path, open_folder, somebody, monkeypatch):
    monkeypatch.setattr(folders, "STATE", open_folder)
    (tmp_path / "before").mkdir()
    chosen = folders.data(tmp_path / "before", somebody)
    (tmp_path / "before").rename(tmp_path / "after")
    assert folders.data(tmp_path / "after", somebody) == chosen


@root_only
def test_copied_clone_does_not_touch_the_original_s_data(tmp_path, open_folder, somebody, monkeypatch):
    monkeypatch.setattr(folders, "STATE", open_folder)
    (tmp_path / "one").mkdir()
    folders.data(tmp_path / "one", somebody)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with pytest.raises(CannotStart, match="this clone is a copy"):
        folders.data(tmp_path / "two", somebody)


@root_only
def test_data_behind_a_door_that_was_closed_is_not_silently_replaced(tmp_path, somebody):
    (tmp_path / "postgres").mkdir()
    with pytest.raises(CannotStart, match="cannot reach"):
        folders.data(tmp_path, somebody)


@root_only
def test_binaries_are_copied_whole_where_the_account_can_execute_them(open_folder, somebody, monkeypatch):
    monkeypatch.setattr(folders, "_temporary", lambda: [open_folder])
    copied = folders._copied(open_folder / "copy")
    assert folders._starts(somebody, copied)
    assert _mode(copied / "postgres") == 0o755
    (copied.parent / "share" / "postgresql" / "postgres.bki").unlink()  # a sweep of the temporary folder
    assert folders._copied(open_folder / "copy") == copied
    assert (copied.parent / "share" / "postgresql" / "postgres.bki").exists()


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
