"""Several requests of one tool at once: rejected, passed on, put off, or approved together, one record each.

Nothing is all or nothing: each goes through the verb of one request, with its own digest and nonce, and has its own
outcome. What may be approved together is small (R1), of one rule and one version of one tool, allowed by that
rule, as first proposed, without any flag, and looked at just now.
"""

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from django.contrib.auth.models import User
from django.db.models import F

from approvals import decisions, desk, looks, reviewers
from approvals.decisions import Choice
from approvals.exceptions import ApprovalsError, Closed, NotEligible, NotVisible, Stale, Unfit
from approvals.models import Request, Revision
from approvals.presentation import lanes, shown
from approvals.states import RequestKind, Verb
from runs import children

MOST, MOST_APPROVED = 100, 20
LOOKED_WITHIN = timedelta(seconds=60)
DOOR = "bulk"


@dataclass(frozen=True, slots=True)
class Item:
    """`looks`: its facts are to be looked at again before it is approved together with others."""

    request: Request
    revision: Revision
    looks: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """`word` is what is counted: "approved", "changed", "decided by Ben"."""

    ref: str
    word: str
    ok: bool
    why: str = ""
    decision: uuid.UUID | None = None


def chosen(person: User, refs: Sequence[str], now: datetime) -> list[Item]:
    """Those of the refs that this person sees and that are open, as they stand; in the order of the refs."""
    rows = reviewers.visible_to(person).open_at(now).filter(ref__in=refs[:MOST])
    found = standing(list(rows.select_related("run", "step", "group")), now)
    order = {ref: place for place, ref in enumerate(dict.fromkeys(refs[:MOST]))}
    return sorted(found, key=lambda item: order[item.request.ref])


def standing(rows: list[Request], now: datetime | None = None) -> list[Item]:
    children.know_chains([row.run for row in rows])
    revisions = Revision.objects.filter(request__in=rows, number=F("request__number")).order_by()
    told = {revision.request_id: revision for revision in revisions}
    return [Item(row, told[row.pk], now is not None and _looks(row, told[row.pk], now)) for row in rows]


def _looks(request: Request, revision: Revision, now: datetime) -> bool:
    return bool(revision.facts) and (request.looked_at is None or now - request.looked_at > LOOKED_WITHIN)


def problems(person: User, verb: str, items: Sequence[Item]) -> list[str]:
    """Why these cannot go through that verb together; nothing: they can."""
    if not items:
        return ["Nothing is ticked that is still open and assigned to you."]
    found = ["Choose items of one type."] if len({item.revision.tool for item in items}) > 1 else []
    if any(not reviewers.eligibility(person, item.request).decides for item in items):
        found.append("Some of these are not yours to decide.")
    return found + (_unlike(items) if verb == Verb.APPROVE else [])


def _unlike(items: Sequence[Item]) -> list[str]:
    """Why these are not to be approved together."""
    alike = {
        (i.revision.tool_version, i.revision.judgement.get("rule"), i.revision.policy_version) for i in items
    }
    small = all(i.request.tier == "R1" == i.revision.judgement.get("tier") for i in items)
    said = {
        f"At most {MOST_APPROVED} are approved together.": len(items) > MOST_APPROVED,
        "Questions are answered one by one.": any(i.request.kind != RequestKind.APPROVAL for i in items),
        "They are not of one version of the tool and one rule.": len(alike) > 1,
        "Only R1 is approved together.": not small,
        "The rule that holds them does not allow approving together.": not all(
            i.revision.judgement.get("bulk_ok") for i in items
        ),
        "Some of these have changed or are flagged: open them one by one.": any(map(_flagged, items)),
    }
    return [why for why, true in said.items() if true]


def _flagged(item: Item) -> bool:
    """Not as it was first proposed, or something about it wants a second look."""
    known = shown.known(item.revision.tool, item.revision.tool_version) is not None
    moved = looks.moved(item.request, item.revision) if item.revision.facts else []
    return (
        item.revision.number > 1 or bool(lanes.flags(item.request, item.revision)) or bool(moved) or not known
    )


def want_looks(items: Iterable[Item]) -> int:
    """Asks for the looks that approving together needs; how many."""
    old = [item for item in items if item.looks]
    for item in old:
        looks.want(item.request)
    return len(old)


# -- Verbs ------------------------------------------------------------------------------------------------


def decide(person: User, verb: Verb, sent: Mapping[str, tuple[str, str]], reason: str = "") -> list[Done]:
    """`sent`: by ref, the digest and the nonce that its row carried. What approving together asks for beyond its
    own digest was asked of all of them before (`problems`)."""
    return [
        _decided(person, ref, Choice(verb, d, reason, nonce=n, door=DOOR)) for ref, (d, n) in sent.items()
    ]


def delegate(person: User, refs: Iterable[str], to: User, reason: str) -> list[Done]:
    act = partial(desk.delegate, person=person, to=to, reason=reason, door=DOOR)
    return [_tried(ref, "passed on", partial(act, ref)) for ref in refs]


def snooze(person: User, refs: Iterable[str], until: datetime) -> list[Done]:
    act = partial(desk.snooze, person=person, until=until, door=DOOR)
    return [_tried(ref, "put off", partial(act, ref)) for ref in refs]


def _decided(person: User, ref: str, choice: Choice) -> Done:
    made: list[decisions.Decided] = []
    word = {Verb.APPROVE: "approved", Verb.REJECT: "rejected"}[Verb(choice.verb)]
    done = _tried(ref, word, lambda: made.append(decisions.decide(ref, person=person, choice=choice)))
    decision = made[0].decision if made else None
    return Done(done.ref, done.word, done.ok, done.why, decision.pk if decision else None)


def _tried(ref: str, word: str, act: Callable[[], object]) -> Done:
    try:
        act()
    except ApprovalsError as no:
        return Done(ref, _word(no), False, str(no))
    return Done(ref, word, True)


def _word(no: ApprovalsError) -> str:
    """What became of one that the verb did not take."""
    if isinstance(no, Closed):
        return f"decided by {no.by}" if no.code == "decided" and no.by else no.code
    if isinstance(no, Stale):
        return "being checked" if no.checking else "changed"
    if isinstance(no, NotVisible | NotEligible):
        return "not yours"
    return "not done" if isinstance(no, Unfit) else no.code.replace("_", " ")


def summed(done: Iterable[Done]) -> str:
    """As a person would say it: 9 approved, 1 changed, 1 decided by Ben."""
    counts = Counter((not one.ok, one.word) for one in done)
    return ", ".join(f"{count} {word}" for (_, word), count in sorted(counts.items(), key=lambda c: c[0]))
