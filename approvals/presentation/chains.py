"""Which runs led to a request: told on its page and in its mail."""

from approvals.models import Request
from runs import children


def names(request: Request) -> str:
    """`refund-desk › checker`: the agents that led to a child's request, the root first; empty for a root run's."""
    runs = children.chain(request.run)
    return " › ".join(" ".join(run.agent.split()) for run in runs) if len(runs) > 1 else ""
