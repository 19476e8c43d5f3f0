"""What the layers promise: the unit layer leaves its process for nothing, and a test's fixtures say where it is."""

import socket
import subprocess
import sys

import pytest

from config import launch
from runs.models import Run
from tests import layers


def named(request: pytest.FixtureRequest) -> list[str]:
    return [name for name in layers.LAYERS if request.node.get_closest_marker(name)]


def test_test_that_asks_for_nothing_is_a_unit(request: pytest.FixtureRequest) -> None:
    assert named(request) == ["unit"]


def test_test_with_the_database_is_integration(request: pytest.FixtureRequest, db: None) -> None:
    assert named(request) == ["integration"]


@pytest.mark.property
def test_marker_has_the_last_word(request: pytest.FixtureRequest) -> None:
    assert named(request) == ["property"]


def test_check_takes_every_layer_the_quick_one_first() -> None:
    taken = [command[2] for command in launch._layers(["-x"])]
    assert taken == list(layers.LAYERS) == ["unit", "integration", "property", "crashes", "points", "browser"]
    assert {command[-1] for command in launch._layers(["-x"])} == {"-x"}


def test_unit_may_not_ask_the_database() -> None:
    with pytest.raises(RuntimeError, match="Database access not allowed"):
        Run.objects.count()


def test_unit_may_not_start_a_process() -> None:
    with pytest.raises(layers.LeftTheProcess, match="Popen"):
        subprocess.run([sys.executable, "-c", ""])


def test_unit_may_not_open_an_address() -> None:
    with socket.socket() as plug:
        with pytest.raises(layers.LeftTheProcess, match="bind"):
            plug.bind(("127.0.0.1", 0))
        with pytest.raises(layers.LeftTheProcess, match="connect"):
            plug.connect(("127.0.0.1", 9))


def test_files_not_read_for_the_unit_layer_hold_nothing_of_it() -> None:
    """Its pattern takes the mark of a whole module, and no other."""
    found = layers.ELSEWHERE.search
    assert found("import x\n\npytestmark = pytest.mark.django_db\n")
    assert found("pytestmark = [pytest.mark.django_db(transaction=True)]\n")
    assert not found("@pytest.mark.django_db\ndef test_x(): ...\n")
    assert found("pytestmark = pytest.mark.integration  # starts processes\n")
    assert not found("pytestmark = pytest.mark.filterwarnings('ignore')\n")
