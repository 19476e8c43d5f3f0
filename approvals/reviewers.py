"""Who may see and decide a request, now; computed at page, at decision and at taking effect.

A reviewer is an active member of the request's group (or, where it has none, of the fallback group). The
requester never decides: the owner of the key that started the run and who issued it, whom it acts for, the
agent's owner; and where the run was started again, who started it first. The same of every run above it.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from allauth.account.models import EmailAddress
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.contrib.postgres.expressions import ArraySubquery
from django.contrib.postgres.fields import ArrayField
from django.db.models import Func, OuterRef, Q, QuerySet, TextField
from django.db.models.functions import Cast

from approvals import rights
from approvals.models import ApiKey, Request, Revision
from approvals.models.request import RequestQuerySet
from runs import agents, children
from runs.models import Run
from runs.prepared import Answer, Batch, Given, Query

#: From this tier on, whoever edited an action is an author and cannot be its only approver.
AUTHORS_EXCLUDED = frozenset({"R3", "R4"})
_WORDS = re.compile(r"[\s<>()\[\]\"',;:]+")


@dataclass(frozen=True, slots=True)
class Eligibility:
    """`why_not` says why a person may not decide; empty: they may."""

    sees: bool
    why_not: str = ""

    @property
    def decides(self) -> bool:
        return self.sees and not self.why_not


#: A person as they are now, with what eligibility asks of them.
FRESH = Query(lambda: _known(User.objects.filter(pk=Given("person"))))
#: The active members of a group, by its id or its name, likewise.
_MEMBERS = Query(
    lambda: (
        _known(User.objects.filter(is_active=True))
        .filter(Q(groups=Given("group")) | Q(groups__name=Given("name")))
        .order_by("pk")
    )
)
HIDDEN = Eligibility(False, "It is not assigned to you.")


def _known(people: QuerySet[User]) -> QuerySet[User]:
    """With what `rights.group_names` and `_traces` would look up for each."""
    of_them = Cast(OuterRef("pk"), TextField())
    traces = Func(
        ArraySubquery(ApiKey.objects.filter(issuer_id=of_them).order_by().values("prefix")),
        ArraySubquery(EmailAddress.objects.filter(user=OuterRef("pk")).values("email")),
        function="array_cat",
        output_field=ArrayField(TextField()),
    )
    names = ArraySubquery(Group.objects.filter(user=OuterRef("pk")).values("name"))
    return people.annotate(_group_names=names, _traces=traces).order_by()


def visible_to(user: Any) -> RequestQuerySet:
    """Requests this person may see: their groups', and all of them for operators and auditors."""
    if not user.is_authenticated or not user.is_active:
        return Request.objects.none()
    if rights.sees_all(user):
        return Request.objects.all()
    return Request.objects.filter(rights.of_groups(user))


def assigned_to(user: Any) -> RequestQuerySet:
    """Requests of the groups this person is in, whether or not they are excluded from one."""
    if not user.is_authenticated or not user.is_active:
        return Request.objects.none()
    return Request.objects.filter(rights.of_groups(user))


def eligibility(user: Any, request: Request, *, fresh: bool = False) -> Eligibility:
    """Whether this person may see and decide this request. `fresh`: read their groups again."""
    if fresh and user.is_authenticated:
        user = User.objects.filter(pk=user.pk).first() or user
    if not user.is_authenticated or not user.is_active:
        return HIDDEN
    member = _is_member(user, request)
    if not member:
        return (
            Eligibility(True, "You may see this, but you don't review it.")
            if rights.sees_all(user)
            else HIDDEN
        )
    return Eligibility(True, _excluded(user, request))


def _is_member(user: Any, request: Request) -> bool:
    names = rights.group_names(user)
    return (request.group.name if request.group else settings.FALLBACK_REVIEWERS) in names


def _excluded(user: Any, request: Request) -> str:
    return requester_of(user, request.run)


def requester_of(user: Any, asking: Run) -> str:
    """Why this person is the requester of what that run wants; empty: they are not."""
    return next((why for run in children.chain(asking) if (why := _asks(user, run, asking))), "")


def _asks(user: Any, run: Run, asking: Run) -> str:
    """Why this person is the requester of what `asking` wants: of it, or of `run` above it."""
    if str(user.pk) in _starters(run):
        return "You started this run, so somebody else decides."
    if _issued(user, run):
        return "You issued the key that started this run, so somebody else decides."
    if _names(user, run.on_behalf_of):
        return "The run acts for you, so somebody else decides."
    made = agents.find(run.agent, run.agent_version)
    if made is not None and _names(user, made.owner):
        which = "this agent" if run is asking else f"{run.agent}, which started this run"
        return f"You own {which}, so somebody else decides."
    return ""


def know_starters(runs: Sequence[Run]) -> None:
    """Reads who started many runs and those they run again, for `_starters`; a query for each time one was started
    again, and none where none was."""
    wanted = {run.pk: run.again_of_id for run in runs if run.again_of_id is not None}
    owners: dict[Any, set[str]] = {pk: set() for pk in wanted}
    while wanted:
        rows = Run.objects.filter(pk__in=set(wanted.values())).values_list("pk", "owner_id", "again_of")
        found = {pk: (owner, before) for pk, owner, before in rows}
        for pk, before in wanted.items():
            owners[pk].add(found[before][0])
        wanted = {pk: further for pk, before in wanted.items() if (further := found[before][1]) is not None}
    for run in runs:
        run._starters = owners.get(run.pk, set())  # type: ignore[attr-defined]


def _starters(run: Run) -> set[str]:
    """Who started the run and, where it runs again what ended, who started that."""
    if hasattr(run, "_starters"):
        return {run.owner_id, *run._starters}
    found, before = {run.owner_id}, run.again_of_id
    while before is not None:
        owner, before = Run.objects.filter(pk=before).values_list("owner_id", "again_of").get()
        found.add(owner)
    return found


def _issued(user: Any, run: Run) -> bool:
    """Who issues a key has it in hand, whoever owns it."""
    return run.submitter_kind == "key" and run.submitter_id in _traces(user)


def _names(user: Any, text: str) -> bool:
    """Whether a text names this person: by an address, alone or among other words, or by their whole name."""
    said = _plain(text)
    if not said:
        return False
    return said in _names_of(user) or any(
        "@" in word and word in _names_of(user) for word in _WORDS.split(said)
    )


def _names_of(user: Any) -> set[str]:
    """Every address they have or had (none is ever taken off an account), and their name, if it is a whole one."""
    full = user.get_full_name()
    known = [user.email, user.get_username(), full if " " in full else "", *_traces(user)]
    return {_plain(name) for name in known if name}


def _traces(user: Any) -> frozenset[str]:
    """The prefixes of the keys this person issued, and the addresses of their account; looked up once."""
    if not hasattr(user, "_traces"):
        issued = ApiKey.objects.filter(issuer_id=str(user.pk)).order_by().values_list("prefix")
        had = EmailAddress.objects.filter(user_id=user.pk).values_list("email")
        user._traces = frozenset(text for (text,) in issued.union(had, all=True))
    return user._traces  # type: ignore[no-any-return]


def _plain(text: str) -> str:
    """Without what nobody sees, and without case: a name with a zero-width space in it is that name."""
    shown = (
        c
        for c in unicodedata.normalize("NFKC", text)
        if unicodedata.category(c) not in ("Cf", "Cc") or c.isspace()
    )
    return " ".join("".join(shown).casefold().split())


def is_author(user: Any, revision: Revision) -> bool:
    """Whether this person edited the revision, and is excluded from completing it alone."""
    return revision.author_id == str(user.pk) and revision.judgement.get("tier", "R3") in AUTHORS_EXCLUDED


def known(ids: Iterable[int]) -> dict[int, User]:
    """These people as they are now, in one query, with what eligibility asks of them."""
    return {person.pk: person for person in _known(User.objects.filter(pk__in=list(ids)))}


def members(group_id: int | None) -> list[User]:
    """The active members of a group; None: of the fallback."""
    return _MEMBERS.all(**_of_group(group_id))


def asking_members(batch: Batch, group_id: int | None) -> Answer[User]:
    """The same, asked in a batch."""
    return batch.ask(_MEMBERS, **_of_group(group_id))


def _of_group(group_id: int | None) -> dict[str, Any]:
    return {"group": group_id or 0, "name": "" if group_id else settings.FALLBACK_REVIEWERS}


def candidates(request: Request, among: Sequence[User] | None = None) -> list[User]:
    """Active people who may decide it, for the mails; `among`: the members of its group, where they are at hand."""
    people = members(request.group_id) if among is None else among
    return [person for person in people if not _excluded(person, request)]
