"""What `./run bench` may be asked for, before it starts anything."""

from importlib.util import find_spec

import pytest

from benchmarks import bench
from benchmarks.figures import FIGURES
from benchmarks.peers.environment import REQUIREMENTS
from benchmarks.sitting import QUICK, Amounts


def test_asked_for_nothing_measures_everything():
    options = bench.read([])
    assert options.only == tuple(FIGURES)
    assert bench.how_much(options) == Amounts()


def test_only_takes_some_figures_once_each():
    assert bench.read(["--only", "4,1,4"]).only == ("4", "1")


def test_quick_is_less_of_everything_and_what_is_named_still_counts():
    amounts = bench.how_much(bench.read(["--quick", "--rounds", "7", "--rows", "2000"]))
    assert (amounts.rounds, amounts.rows, amounts.steps) == (7, 2000, QUICK.steps)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "1,99"], "no figure '99'"),
        (["--only", ""], "no figure ''"),
        (["--rounds", "0"], "'0' is not a whole number from 1 on"),
        (["--rounds", "-3"], "'-3' is not a whole number from 1 on"),
        (["--rounds", "many"], "'many' is not a whole number from 1 on"),
        (["--rows", "1999"], "'1999' is not a whole number from 2000 on"),
        (["--waiting", "1.5"], "'1.5' is not a whole number from 100 on"),
        (["--fast"], "unrecognized arguments: --fast"),
        (["4"], "unrecognized arguments: 4"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_word(arguments, said, capsys):
    with pytest.raises(SystemExit) as refused:
        bench.read(arguments)
    assert refused.value.code == 2
    assert said in capsys.readouterr().err


def test_every_figure_has_its_room():
    assert [name for name, room in FIGURES.items() if find_spec(f"benchmarks.figures.{room}") is None] == []


def test_peers_are_pinned_and_name_no_place_to_get_them_from():
    lines = [line for line in REQUIREMENTS.read_text().splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if line.count("==") != 1 or "/" in line or line.startswith("-")] == []
    assert {"dbos==3.4.0", "langgraph==1.2.24", "langgraph-checkpoint-postgres==3.2.0"} <= set(lines)
