"""What the reviewers' pages are made from: plain values, assembled from rows, decided by nobody here.

Templates say at their top what they need; these functions give just that. Pages show what is stored: nothing
outside is asked while one is made.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from approvals import looks, reviewers
from approvals.exceptions import Closed, NotEligible, Stale
from approvals.models import Decision, Request, Revision
from approvals.presentation import digests, reveal, shown
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
MOST_FLAGS, MOST_WHY = 20, 200
LONG_ODD, MANY_MARKS = 20_000, 5_000  # characters; revisions
STEPS, STEPS_AFTER = 40, 5
OUTCOMES = {Verb.APPROVE: "approved", Verb.REJECT: "rejected", Verb.RESPOND: "answered"}
NOUNS = {Verb.APPROVE: "approval", Verb.REJECT: "rejection", Verb.RESPOND: "answer"}


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
    label = "Send this answer" if question else shown.approve_label(revision.tool, revision.arguments)
    return {
        "ref": request.ref,
        "url": request.get_absolute_url(),
        "revision": revision.number,
        "tier": request.tier,
        "state": state(request, now),
        "kind": request.kind,
        "headline": headline(request, revision),
        "consequence": "" if question else shown.consequence(revision.tool, revision.arguments),
        "agent": run.agent,
        "agent_version": run.agent_version,
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
        "argument_flags": flags(revision),
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


def flags(revision: Revision) -> list[str]:
    """Warnings about the text of what will run."""
    found = [
        f"{name}: {said}" for name, text in _texts(json.loads(revision.arguments)) for said in _warnings(text)
    ]
    if shown.known(revision.tool, revision.tool_version) is None:
        found.append(
            "This tool is not the version that was proposed; its arguments are shown as they are, not decoded"
        )
    return found if len(found) <= MOST_FLAGS else [*found[:MOST_FLAGS], f"and {len(found) - MOST_FLAGS} more"]


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


def _warnings(text: str) -> list[str]:
    """What is odd about a text, in words."""
    return [] if _is_plain(text) else list(reveal.flags(text))


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and "    " not in text


def _texts(value: Any, path: str = "") -> list[tuple[str, str]]:
    """Every text in a value with where it stands; a name in it that is no plain word is such a text too."""
    if isinstance(value, str):
        return [(path or "value", value)]
    if isinstance(value, dict):
        names = [(f"a name in {path or 'the arguments'}", key) for key in value if not key.isidentifier()]
        return names + [
            each for key, one in value.items() for each in _texts(one, f"{path}.{key}".lstrip("."))
        ]
    if isinstance(value, list):
        return [each for place, one in enumerate(value) for each in _texts(one, f"{path}[{place}]")]
    return []


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


def earlier(request: Request) -> list[dict[str, Any]]:
    """Decisions on revisions before the standing one, and why each of those was replaced."""
    told: list[dict[str, Any]] = []
    for decision in request.decisions.select_related("revision").exclude(revision__number=request.number):
        said = f"{OUTCOMES[Verb(decision.verb)]}, which no longer counts:"
        told.append(
            _event(decision.made_at, decision.revision.number, decision.person_name, said, decision.reason)
        )
    for revision in request.revisions.filter(number__gt=1):
        who, what = WHY.get(revision.reason, WHY["again"])
        told.append(
            _event(revision.created_at, revision.number, revision.author_name or who, what, revision.note)
        )
    return sorted(told, key=lambda event: event["at"])


WHY = {
    "drift": ("Abeyance", "found changed facts and opened"),
    "lapsed": ("Abeyance", "asked again, because the approval was not used in time, with"),
    "policy": ("Abeyance", "asked again, because policy got stricter, with"),
    "edit": ("A reviewer", "edited the arguments and made"),
    "tool": ("Abeyance", "asked again, because the tool itself changed, with"),
    "changed": ("Abeyance", "asked again, because what was approved was not what is stored, with"),
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
    return [
        looks.sentence(moved)
        for moved in looks.moved(request, revision)
        if moved["kind"] == "blocking" or moved["now"] is None
    ]


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
    decision = request.decisions.filter(revision__number=request.number).order_by("made_at").last()
    if decision is not None and word in DECIDED:
        outcome = OUTCOMES[Verb(decision.verb)]
        return Panel("standing", decision.person_name, decision.made_at, outcome, reason=decision.reason)
    at = request.decide_by if word == RequestState.EXPIRED else request.closed_at
    return Panel(word, at=at, why="" if word == RequestState.EXPIRED else request.closed_why)


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
        return Panel(error.code, at=error.at, verb=noun, why="" if error.code == "expired" else str(error))
    kind = "decided_same" if error.verb == choice_verb else "decided_other"
    last = request.decisions.order_by("made_at").last()
    outcome = OUTCOMES[Verb(error.verb)]
    reason = last.reason if last is not None and kind == "decided_other" else ""
    return Panel(kind, error.by, error.at, outcome, noun, reason=reason)


# -- Inbox -----------------------------------------------------------------------------

LANES = (
    ("now", "Decide now", "15 minutes or less are left."),
    ("high", "High risk", "Its tier is R3 or R4."),
    ("today", "Today", "It ends within eight hours, or has waited for three days."),
    ("later", "Later", "More than eight hours are left."),
)


@dataclass(frozen=True, slots=True)
class InboxRow:
    ref: str
    url: str
    headline: str
    tier: str
    kind: str
    decide_by: datetime | None
    opened_at: datetime
    agent: str
    agent_version: str
    on_behalf_of: str
    run_short: str
    flags: tuple[str, ...]
    approvals: int
    quorum: int
    why_here: str
    lane: str


def inbox_row(request: Request, revision: Revision, now: datetime, approvals: int = 0) -> InboxRow:
    key, _, why = lane(request, now)
    marks = (["changed"] if revision.reason == "drift" else []) + (["edited"] if revision.edited else [])
    marks += _odd(revision)
    return InboxRow(
        ref=request.ref,
        url=request.get_absolute_url(),
        headline=headline(request, revision),
        tier=request.tier,
        kind=request.kind,
        decide_by=request.decide_by,
        opened_at=revision.created_at,
        agent=request.run.agent,
        agent_version=request.run.agent_version,
        on_behalf_of=request.run.on_behalf_of,
        run_short=request.run.short_id,
        flags=tuple(marks),
        approvals=approvals,
        quorum=request.quorum,
        why_here=why,
        lane=key,
    )


_marks: dict[str, list[str]] = {}


def _odd(revision: Revision) -> list[str]:
    """Marks for texts that want a second look. An inbox has many rows, and a text may be made to take long: so
    what is not plain is read up to a length, and each revision's once by a process."""
    key = revision.arguments_digest
    if key not in _marks:
        if len(_marks) >= MANY_MARKS:
            _marks.clear()
        odd = [text for _, text in _texts(json.loads(revision.arguments)) if not _is_plain(text)]
        long = sum(map(len, odd)) > LONG_ODD
        found = any(reveal.flags(text) for text in odd) if not long else False
        _marks[key] = ["long text"] if long else ["hidden text"] if found else []
    return _marks[key]


def lane(request: Request, now: datetime) -> tuple[str, str, str]:
    """Risk and time left decide, by rules a person can follow."""
    left = request.decide_by - now if request.decide_by else timedelta.max
    waited = now - request.opened_at
    if left <= timedelta(minutes=15):
        return LANES[0]
    if request.tier in ("R3", "R4"):
        return LANES[1]
    return LANES[2] if left <= timedelta(hours=8) or waited >= timedelta(days=3) else LANES[3]


def lanes(found: list[InboxRow]) -> list[dict[str, Any]]:
    """The lanes that are not empty; in one, the higher tier first, then who has less time."""
    latest = datetime.max.replace(tzinfo=UTC)
    ordered = sorted(found, key=lambda row: (-int(row.tier[1:]), row.decide_by or latest, row.ref))
    told = [
        {"key": key, "title": title, "rows": [r for r in ordered if r.lane == key]} for key, title, _ in LANES
    ]
    return [one for one in told if one["rows"]]


# -- What came of it ---------------------------------------------------------------------


VOIDED = "It no longer counts: what it was about changed."


def outcome(request: Request, decision: Decision) -> tuple[list[dict[str, Any]], bool]:
    """What followed a decision, and whether nothing more will come."""
    if decision.revision.number != request.number:
        return [{"at": decision.made_at, "what": VOIDED, "tone": "bad"}], True
    if request.is_pending:
        waits = "It counts, and waits for somebody else's approval."
        return [{"at": decision.made_at, "what": waits, "tone": "still"}], True
    step, run = request.step, request.run
    told = []
    if request.decided_at is not None and request.state != RequestState.DECIDED:
        told.append({"at": request.decided_at, "what": "In force: the run has been told.", "tone": "still"})
    if step.dispatched_at is not None and step.permit:
        told.append({"at": step.dispatched_at, "what": "The call was made.", "tone": "moving"})
    if step.settled_at is not None:
        told.append({"at": step.settled_at, "settles": True, **_settled(step)})
    if step.effect == "in_doubt":
        told.append(
            {"at": step.dispatched_at, "what": "Its outcome is in doubt; operators see it.", "tone": "bad"}
        )
    if run.ended_at is not None:
        told.append({"at": run.ended_at, "what": f"The run {ENDS[run.status]}.", "tone": "still"})
    return told, run.ended or step.settled_at is not None


ENDS = {"succeeded": "succeeded", "failed": "failed", "cancelled": "was cancelled", "expired": "expired"}


def _settled(step: Step) -> dict[str, str]:
    if step.status == "done":
        return {"what": "It succeeded." if step.effect else "The agent has the answer.", "tone": "good"}
    kind = json.loads(step.result or "{}").get("type", "an error").rpartition(":")[2]
    if kind == "Rejected":
        return {"what": "The agent read the rejection.", "tone": "still"}
    return {"what": f"It ended with {kind}{_why(step)}", "tone": "bad"}


def _why(step: Step) -> str:
    """The last text of what a recorded error says, which is its sentence where it has one."""
    said = [
        each
        for each in json.loads(step.result or "{}").get("args", [])
        if isinstance(each, str) and each.strip()
    ]
    return f": {said[-1][:MOST_WHY].rstrip('.')}." if said else "."


def awaited(request: Request) -> str:
    """What a decision's outcome still waits for."""
    if request.state == RequestState.DECIDED:
        return "It is not in force yet."
    if request.run.status == "suspended":
        return "Something else holds the run."
    return "The run goes on."


def next_item(person: Any, after: Request, now: datetime) -> dict[str, Any] | None:
    """The request this person would be shown next."""
    waiting = (
        reviewers.assigned_to(person).open_at(now).exclude(pk=after.pk).select_related("run", "step", "group")
    )
    for request in waiting.order_by("-tier", "decide_by", "ref")[:10]:
        if reviewers.eligibility(person, request).decides:
            revision = request.revision
            if revision.decisions.filter(person_id=str(person.pk)).exists():
                continue
            return {
                "url": request.get_absolute_url(),
                "tier": request.tier,
                "headline": headline(request, revision),
                "decide_by": request.decide_by,
                "opened_at": revision.created_at,
            }
    return None
