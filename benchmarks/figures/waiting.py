"""Figure 5: from `decide` to the next line with many waiting, against none; the same round, the same verbs.

The rounds with none are measured first, then the rows are made (by SQL, whole copies of a run that waits), then the
others: paired by their order. Pages: what the backend of whoever decides looks at, a decision. DBOS keeps a thread
for each that waits; how many it gets is said, and only with as many as we have is its goal judged.
"""

import statistics

from benchmarks.figures.deciding import decided, of_dbos
from benchmarks.filling import tidy
from benchmarks.ours import TEXT
from benchmarks.sitting import Sitting
from benchmarks.table import DBOS, FEW, OURS, Bound, Line, Round, number

PAGES = """
SELECT coalesce(sum(hits + reads), 0) FROM pg_stat_get_backend_io(pg_backend_pid()) WHERE object = 'relation'
"""


def measure(sitting: Sitting) -> list[Line]:
    amounts, filling = sitting.amounts, sitting.filling
    with sitting.ours.worker():
        decided(sitting, amounts.decisions)  # warm
        tidy()
        before = [one_round(sitting) for _ in range(amounts.rounds)]
        filling.fill(amounts.waiting, whole=True)
        after = [one_round(sitting) for _ in range(amounts.rounds)]
        filling.empty()
    beside = of_dbos_waiting(sitting)
    times = [{OURS: many[0], FEW: none[0], **beside} for many, none in zip(after, before, strict=True)]
    pages: list[Round] = [
        {OURS: many[1], FEW: none[1]} for many, none in zip(after, before, strict=True) if many[1]
    ]
    goal = (Bound(1 / 80, DBOS),) if amounts.dbos_waiting >= amounts.waiting else ()
    note = f"of DBOS {number(amounts.dbos_waiting)} wait, with a thread each" if beside else ""
    what = f"`decide` → next line with {number(amounts.waiting)} waiting (few: none), p50"
    return [
        Line("5", what, "ms", times, (Bound(1.2, FEW),), goal, note),
        Line("5", "pages that deciding looks at", "", pages, (), (Bound(1.1, FEW),)),
    ]


def one_round(sitting: Sitting) -> tuple[float, float]:
    """The median time, and the pages a decision."""
    runs = sitting.ours.waiting(sitting.amounts.decisions)
    before = pages()
    times = decided(sitting, sitting.amounts.decisions, runs=runs)
    return statistics.median(one["tool"] for one in times), (pages() - before) / len(times)


def pages() -> float:
    """So far, of this process's backend; 0 before PostgreSQL 18, which does not tell."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version_num')::integer >= 180000")
        if not cursor.fetchone()[0]:
            return 0
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(PAGES)
        return float(cursor.fetchone()[0])


def of_dbos_waiting(sitting: Sitting) -> Round:
    with sitting.peers.dbos() as dbos:
        if dbos is None:
            return {}
        of_dbos(sitting, dbos, 5)
        names = sitting.names(sitting.amounts.dbos_waiting)
        dbos.worker.ask("start", names=names, count=1, text=TEXT)
        return {DBOS: statistics.median(of_dbos(sitting, dbos, sitting.amounts.decisions))}
