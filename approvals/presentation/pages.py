"""What the reviewers' pages are made from: plain values, assembled from rows, decided by nobody here.

Templates say at their top what they need; these functions give just that. Pages show what is stored: nothing
outside is asked while one is made.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from approvals import looks, requests
from approvals.exceptions import Closed, NotEligible, Stale
from approvals.models import Decision, Request, Revision, Undo
from approvals.presentation import chains, digests, oddities, shown
from approvals.states import RequestKind, RequestState, Verb
from runs import values
from runs.models import Step

REASONS = (
    ("wrong amount", "Wrong amount"),
    ("wrong recipient", "Wrong recipient"),
    ("not asked for", "Not asked for"),
    ("against policy", "Against policy"),
    ("duplicate", "Duplicate"),
    ("other", "Other"),
)
STEPS, STEPS_AFTER = 40, 5
OUTCOMES = {Verb.APPROVE: "approved", Verb.REJECT: "rejected", Verb.RESPOND: "answered"}
NOUNS = {Verb.APPROVE: "approval", Verb.REJECT: "rejection", Verb.RESPOND: "answer"}
ENDS = {"succeeded": "succeeded", "failed": "failed", "cancelled": "was cancelled", "expired": "expired"}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a comparison."""

    name: str
    was: Any
    now: Any
    change: str
    code: bool = True  # an argument's name; else the title of a fact


@dataclass(frozen=True, slots=True)
class FactShown:
    name: str
    label: str
    then: Any
    now: Any
    state: str
    source: str
    kind: str
    problem: str = ""
    by_agent: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """Why a request cannot be decided (any more); see `components/closed_panel.html`."""

    kind: str
    who: str = ""
    at: datetime | None = None
    outcome: str = ""
    verb: str = ""
    reason: str = ""
    why: str = ""
    changes: tuple[Row, ...] = ()


# -- One request ---------------------------------------------------------------------


def item(request: Request, revision: Revision, now: datetime) -> dict[str, Any]:
    """The header of a request's pages."""
    run, question = request.run, request.kind == RequestKind.QUESTION
    word = state(request, now)
    label = "Send this answer" if question else shown.approve_label(revision.tool, revision.arguments)
    return {
        "ref": request.ref,
        "url": request.get_absolute_url(),
        "revision": revision.number,
        "tier": request.tier,
        "state": RequestState.OPEN if word == RequestState.NEEDS_INFO else word,
        "kind": request.kind,
        "headline": headline(request, revision),
        "consequence": "" if question else shown.consequence(revision.tool, revision.arguments),
        "agent": run.agent,
        "agent_version": run.agent_version,
        "chain": chains.names(request),
        "asked_by": run.submitter_name,
        "on_behalf_of": run.on_behalf_of,
        "proposed_at": request.opened_at,
        "opened_at": revision.created_at,
        "decide_by": request.decide_by,
        "if_nobody": "The agent is told that nobody answered." if question else "Nothing is run.",
        "tool": revision.tool,
        "tool_version": revision.tool_version,
        "step": request.step.index,
        "run_short": run.short_id,
        "run_url": run.get_absolute_url(),
        "fingerprint": digests.fingerprint(request.ref, revision.number, revision.arguments_digest),
        "approve_label": label,
        "arguments_json": revision.arguments,
        "kinds": kinds(revision),
        "argument_flags": oddities.flags(revision),
        "run_held": run.open_holds > 0,
    }


def state(request: Request, now: datetime) -> str:
    """The state a reader should see: expired as soon as its time is up, whatever the sweeper has got to."""
    if request.is_pending and request.decide_by is not None and request.decide_by <= now:
        return RequestState.EXPIRED
    return request.state


def headline(request: Request, revision: Revision) -> str:
    if request.kind == RequestKind.QUESTION:
        return f"A question from {request.run.agent}"
    return shown.headline(revision.tool, revision.arguments)


def matters(revision: Revision) -> list[tuple[str, str]]:
    """The arguments of a revision in short, for a page that is about the decision."""
    return [(name, shown.in_short(value)) for name, value in json.loads(revision.arguments).items()]


def kinds(revision: Revision) -> dict[str, str]:
    """What JSON cannot say of an argument: decimals and times travel as text."""
    tool = shown.known(revision.tool, revision.tool_version)
    properties = tool.signature.schema().get("properties", {}) if tool else {}
    return {name: word for name, described in properties.items() if (word := _kind(described))}


def _kind(described: dict[str, Any]) -> str:
    types = {option.get("type") for option in described.get("anyOf", [described])}
    if {"number", "string"} <= types:
        return "decimal"
    return str(described.get("format", ""))


def facts(request: Request, revision: Revision) -> list[FactShown]:
    """Then is what was seen when the call was first proposed; now is what the last look saw."""
    first = {fact["name"]: fact for fact in request.revisions.get(number=1).facts}
    return [_fact(told, first.get(told["name"]), revision) for told in looks.current(request, revision)]


def _fact(told: dict[str, Any], first: dict[str, Any] | None, revision: Revision) -> FactShown:
    if told["value"] is None:
        word = "unreadable"
    elif first is None or first["value"] is None:
        word = "new"
    else:
        word = "changed" if looks.differs(told, first, revision) else "same"
    return FactShown(
        name=told["name"],
        label=told["title"],
        then=_loaded(first["value"]) if first else None,
        now=_loaded(told["value"]),
        state=word,
        source=told["source"],
        kind=told["kind"],
        problem=told["problem"],
    )


def _loaded(value: str | None) -> Any:
    return None if value is None else json.loads(value)


def rows(changes: list[dict[str, Any]]) -> list[Row]:
    """Recorded changes as lines of a comparison."""
    return [
        Row(
            c.get("title") or c["name"], _loaded(c["then"]), _loaded(c["now"]), _change(c), not c.get("title")
        )
        for c in changes
    ]


def _change(change: dict[str, Any]) -> str:
    if change["then"] is None:
        return "added"
    return "removed" if change["now"] is None else "changed"


def earlier(request: Request, *, hidden: bool = False) -> list[dict[str, Any]]:
    """Decisions that do not count any more: taken back, or on revisions before the standing one; and why each of
    those was replaced. `hidden`: what others said of the standing one is not told."""
    made = request.decisions.select_related("revision", "undone")
    told = [
        _undone(each.undone, each) if hasattr(each, "undone") else _replaced(each)
        for each in made
        if each.revision.number != request.number or (hasattr(each, "undone") and not hidden)
    ]
    for revision in request.revisions.filter(number__gt=1):
        who, what = WHY.get(revision.reason, WHY["again"])
        told.append(
            _event(revision.created_at, revision.number, revision.author_name or who, what, revision.note)
        )
    return sorted(told, key=lambda event: event["at"])


def _replaced(made: Decision) -> dict[str, Any]:
    said = f"{OUTCOMES[Verb(made.verb)]}, which no longer counts:"
    return _event(made.made_at, made.revision.number, made.person_name, said, made.reason)


def _undone(undo: Undo, made: Decision) -> dict[str, Any]:
    did = "took back their" if undo.person_id == made.person_id else "stopped another’s"
    said = f"{did} {NOUNS[Verb(made.verb)]} of"
    return _event(undo.made_at, made.revision.number, undo.person_name, said, undo.reason)


WHY = {
    "drift": ("Abeyance", "found changed facts and opened"),
    "lapsed": ("Abeyance", "asked again, because the approval was not used in time, with"),
    "policy": ("Abeyance", "asked again, because policy got stricter, with"),
    "edit": ("A reviewer", "edited the arguments and made"),
    "tool": ("Abeyance", "asked again, because the tool itself changed, with"),
    "changed": ("Abeyance", "asked again, because what was approved was not what is stored, with"),
    "unmade": ("Abeyance", "asked again, because the call was made and did not happen, with"),
    "unreadable": ("A reviewer", "went on without a fact that could not be read, and made"),
    "role_lost": ("Abeyance", "asked again, because an approver lost the right to decide, with"),
    "again": ("Abeyance", "asked again with"),
}


def _event(at: datetime, revision: int, who: str, what: str, reason: str) -> dict[str, Any]:
    return {"at": at, "revision": revision, "who": who, "what": what, "reason": reason}


def steps(request: Request) -> tuple[list[Step], int]:
    """The run's steps that lead to this one and a few after it, with their headlines, and how many others
    the run has. Results are left where they are: they may be large."""
    rows = Step.objects.filter(run_id=request.run_id).defer("result", "executed", "evidence")
    near = rows.filter(index__lte=request.step.index + STEPS_AFTER).order_by("-index")
    found = list(near[:STEPS])[::-1]
    for step in found:
        step.headline = shown.headline(step.tool, step.arguments)  # type: ignore[attr-defined]
        step.current = step.pk == request.step_id  # type: ignore[attr-defined]
        if step.pk == request.step_id and request.state == RequestState.EXPIRED:
            step.word = "expired"  # type: ignore[attr-defined]
    return found, rows.count() - len(found)


def blocks(request: Request, revision: Revision) -> list[str]:
    """Why approving isn't possible now."""
    return [looks.sentence(moved) for moved in looks.blocks(request, looks.moved(request, revision))]


def version(request: Request) -> str:
    """What the pulse compares: what stands, and when it was last looked at."""
    looked = request.looked_at.isoformat() if request.looked_at else "-"
    return f"{request.number}.{looked}.{int(request.look_wanted_at is not None)}"


def facts_version(told: list[FactShown]) -> str:
    """What a page shows of the facts: also what an unreadable look changes, which makes no revision."""
    return values.digest(json.dumps([[fact.name, fact.state, fact.now] for fact in told]))[:16]


#: Ends that a person's decision brought.
DECIDED = frozenset(
    {RequestState.DECIDED, RequestState.IN_FORCE, RequestState.CONSUMED, RequestState.REJECTED}
)


# -- Panels ----------------------------------------------------------------------------


def standing(request: Request, now: datetime) -> Panel | None:
    """How a request that is not open stands; None while it is open."""
    word = state(request, now)
    if word in (RequestState.OPEN, RequestState.NEEDS_INFO):
        return None
    said = request.decisions.standing().filter(revision__number=request.number)
    decision = said.order_by("made_at").last()
    if decision is not None and word in DECIDED:
        outcome = OUTCOMES[Verb(decision.verb)]
        return Panel("standing", decision.person_name, decision.made_at, outcome, reason=decision.reason)
    if word == RequestState.EXPIRED:
        return Panel(word, at=request.decide_by)
    who, ended = requests.closed_by(request), _run_ended(request, word)
    return Panel(word, who, request.closed_at, ended, why=request.closed_why)


def _run_ended(request: Request, word: str) -> str:
    """What became of the run, of a request that was closed with it: not every one was cancelled."""
    return ENDS.get(request.run.status, "is being cancelled") if word == RequestState.CANCELLED else ""


def not_done(request: Request, error: Closed | NotEligible) -> Panel:
    """What a person is told who could not do something beside deciding."""
    if isinstance(error, NotEligible):
        return Panel("not_yours", why=str(error))
    if error.code in ("too_late", "waits", "void"):
        return Panel(error.code, at=error.at, why=str(error))
    return standing(request, error.at or request.opened_at) or refusal(request, "", error)


def refusal(request: Request, choice_verb: str, error: Closed | Stale | NotEligible) -> Panel:
    """What a person is told whose decision was not taken."""
    noun = NOUNS.get(Verb(choice_verb), "decision") if choice_verb in Verb.values else "decision"
    if isinstance(error, NotEligible):
        return Panel("not_yours", why=str(error), verb=noun)
    if isinstance(error, Stale):
        if error.checking:
            return Panel("checking", verb=noun)
        return Panel("stale", verb=noun, why=str(error), changes=tuple(rows(error.changes)))
    if error.code != "decided":
        why = "" if error.code == "expired" else str(error)
        return Panel(error.code, error.by, error.at, _run_ended(request, error.code), noun, why=why)
    kind = "decided_same" if error.verb == choice_verb else "decided_other"
    last = request.decisions.standing().order_by("made_at").last()
    outcome = OUTCOMES[Verb(error.verb)]
    reason = last.reason if last is not None and kind == "decided_other" else ""
    return Panel(kind, error.by, error.at, outcome, noun, reason=reason)
