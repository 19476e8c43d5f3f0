"""LangGraph with its PostgreSQL checkpointer: a step, looped, then an interrupt, then the node after it.

`durability="sync"`: a checkpoint is persisted before the next node starts, which is what the others promise.
"""

import time
from typing import Any, TypedDict

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from psycopg.rows import dict_row

TEXT = "text"
marks: dict[str, float] = {}


class State(TypedDict):
    left: int
    text: str


def step(state: State) -> dict[str, Any]:
    marks.setdefault("first_step", time.monotonic())
    marks["last_step"] = time.monotonic()
    return {"left": state["left"] - 1, "text": state["text"]}


def approve(state: State) -> dict[str, Any]:
    interrupt({"question": "May it?"})
    return {}


def next_line(state: State) -> dict[str, Any]:
    marks["next"] = time.monotonic()
    return {}


def compiled(address: str, *, waits: bool = True) -> Any:
    """The graph on a connection of its own. Not `waits`: it ends after the steps."""
    connection = psycopg.connect(address, autocommit=True, prepare_threshold=0, row_factory=dict_row)
    saver = PostgresSaver(connection)
    saver.setup()
    graph = StateGraph(State)
    graph.add_node("step", step)
    graph.add_node("approve", approve)
    graph.add_node("next", next_line)
    graph.add_edge(START, "step")
    after = "approve" if waits else END
    graph.add_conditional_edges("step", lambda state: "step" if state["left"] > 0 else after)
    graph.add_edge("approve", "next")
    graph.add_edge("next", END)
    return graph.compile(checkpointer=saver)


def start(app: Any, name: str, count: int, text: str) -> None:
    app.invoke({"left": count, "text": text}, _of(name), durability="sync")


def resume(app: Any, name: str) -> float:
    """The time of the line after the approval."""
    marks.pop("next", None)
    app.invoke(Command(resume="yes"), _of(name), durability="sync")
    return marks["next"]


def _of(name: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": name}, "recursion_limit": 100_000}
