"""What people know of a run beyond its record: headlines, who decided, the address of a step's request.

`runs` draws the page and knows none of this; it asks through `runs.views.tell_with`. An address is told only
to those who may see the request.
"""

from django.http import HttpRequest

from approvals import reviewers
from approvals.presentation import shown
from runs.models import Hold, Step

SAID = {"approve": "Approved", "edit": "Edited and approved", "reject": "Rejected", "respond": "Answered"}


def tell(request: HttpRequest, steps: list[Step], held: list[Hold]) -> None:
    """Sets `headline`, `decided` and `request_url` of steps, and `request_url` of holds. One query."""
    wanted = {step.pk for step in steps} | {hold.step_id for hold in held}
    found = reviewers.visible_to(request.user).filter(step__in=wanted - {None}).distinct()
    urls = {row.step_id: row.get_absolute_url() for row in found.only("ref", "step")}
    for step in steps:
        step.headline = shown.headline(step.tool, step.sent)  # type: ignore[attr-defined]
        step.decided = _decided(step)  # type: ignore[attr-defined]
        step.request_url = urls.get(step.pk, "")  # type: ignore[attr-defined]
    for hold in held:
        hold.request_url = urls.get(hold.step_id or 0, "")  # type: ignore[attr-defined]


def _decided(step: Step) -> str:
    """`Approved by Ana R.: as agreed with the customer`; empty where nobody was asked."""
    if not step.decision:
        return ""
    verb, by, note = (str(step.decision.get(key) or "") for key in ("verb", "by", "note"))
    said = f"{SAID.get(verb, verb.capitalize())} by {by}" if by else SAID.get(verb, verb.capitalize())
    return f"{said}: {note}" if note else said
