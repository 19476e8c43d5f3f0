"""The table of `./run bench`: what is compared with what, and when a floor or a goal is met."""

import pytest

from benchmarks import table
from benchmarks.table import DBOS, FEW, OURS, RAW, Bound, Line

STEPS = [{OURS: 1.0, DBOS: 10.0}, {OURS: 2.0, DBOS: 4.0}, {OURS: 9.0, DBOS: 30.0}]


def judged(rounds, bound):
    found = table.judge(rounds, bound)
    return found.value, found.met


def test_ratio_is_made_inside_a_round_and_its_median_counts():
    assert judged(STEPS, Bound(0.3, DBOS)) == (0.3, True)  # of 0.1, 0.5 and 0.3; the medians' ratio is 0.2


@pytest.mark.parametrize(("limit", "met"), [(0.31, True), (0.3, True), (0.29, False)])
def test_limit_itself_is_met(limit, met):
    assert judged(STEPS, Bound(limit, DBOS)) == (0.3, met)


@pytest.mark.parametrize(("limit", "met"), [(4.1, False), (4, True), (3.9, True)])
def test_least_must_be_reached(limit, met):
    assert judged([{OURS: 8.0, DBOS: 2.0}], Bound(limit, DBOS, least=True)) == (4.0, met)


@pytest.mark.parametrize(("limit", "met"), [(2, True), (1, False)])
def test_bound_without_a_column_is_of_the_figure_itself(limit, met):
    assert judged([{OURS: 2.0, RAW: 9.0}, {OURS: 3.0}, {OURS: 1.0}], Bound(limit)) == (2.0, met)


def test_nothing_is_judged_against_what_was_not_measured():
    assert judged([{OURS: 1.0}], Bound(5, DBOS)) == (None, False)
    assert judged([], Bound(5)) == (None, False)


def test_rounds_without_the_column_are_left_out():
    assert judged([{OURS: 1.0}, {OURS: 6.0, DBOS: 2.0}], Bound(3, DBOS)) == (3.0, True)


def test_line_shows_medians_by_column():
    line = Line("1", "a step", "ms", STEPS)
    assert line.shown() == {OURS: 2.0, DBOS: 10.0}


def test_table_says_what_is_met_and_what_is_not():
    lines = [
        Line("1", "a step", "ms", STEPS, (Bound(0.8, DBOS),), (Bound(0.2, DBOS), Bound(3, RAW))),
        Line("9", "inbox", "", [{OURS: 1234.5, FEW: 1.0}], (), (), "with a note"),
    ]
    words = [" ".join(text.split()) for text in table.printed(lines).splitlines()]
    assert words[0] == "# ours ours, few raw commit DBOS LangGraph RQ simple RQ fork"
    assert words[2:-2] == [
        "1 a step, ms 2 10",
        "floor ≤ 0.8 × DBOS: 0.3 met",
        "goal ≤ 0.2 × DBOS: 0.3 NOT MET",
        "goal ≤ 3 × raw commit: not measured",
        "9 inbox 1,234 1",
        "with a note",
    ]
    assert words[-1] == "floors: 1 met, 0 not met, 0 not measured; goals: 0 met, 1 not met, 1 not measured"


def test_columns_stand_below_each_other():
    line = Line("1", "a step", "ms", STEPS)
    head, _, row, *_ = table.printed([line]).splitlines()
    assert head.index("DBOS") + len("DBOS") == row.index("10") + len("10")


def test_json_keeps_every_round_and_what_was_judged():
    said = Line("1", "a step", "ms", STEPS, (Bound(0.8, DBOS),), (Bound(3, RAW),)).as_json()
    assert said["rounds"] == STEPS
    assert said["medians"] == {OURS: 2.0, DBOS: 10.0}
    assert said["floor"] == [{"bound": "≤ 0.8 × DBOS", "value": 0.3, "met": True}]
    assert said["goal"] == [{"bound": "≤ 3 × raw commit", "value": None, "met": None}]
