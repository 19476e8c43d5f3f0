"""What one person has typed, ticked and opened of a revision, kept while a step on the way interrupts.

A draft is of one revision: what was opened of another was something else. It goes with the decision.
"""

from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from approvals import rights
from approvals.exceptions import Unfit
from approvals.models import Draft, Request, Revision
from runs import journal, values
from runs.exceptions import BadValue

LONGEST = 4000


def of(person: User, revision: Revision) -> Draft:
    """The stored one, or an empty one that is not stored."""
    stored = Draft.objects.filter(revision=revision, person_id=str(person.pk)).first()
    return stored or Draft(revision=revision, person_id=str(person.pk))


@transaction.atomic
def keep(person: User, revision: Revision, *, open_section: str = "", **typed: Any) -> Draft:
    """`typed`: note, seen, basis as they are now; the sections that were opened only become more, each one
    journalled."""
    # As a decision takes them: the request, then its drafts.
    request = Request.objects.select_for_update(of=("self",)).get(pk=revision.request_id)
    mine: dict[str, Any] = {"revision": revision, "person_id": str(person.pk)}
    Draft.objects.get_or_create(**mine)
    draft = Draft.objects.select_for_update().get(**mine)
    if open_section and open_section not in draft.opened:
        draft.opened.append(open_section)
        told = {"section": open_section, "revision": revision.number, "digest": revision.digest}
        journal.write(request, rights.actor(person, "page"), "section_opened", **told)
    for name, value in typed.items():
        setattr(draft, name, _kept(name, value, revision))
    draft.save()
    return draft


def _kept(name: str, value: Any, revision: Revision) -> Any:
    """Of what was ticked, what there is to tick. Raises Unfit: a text that cannot be kept."""
    if name == "seen":
        return sorted({fact["name"] for fact in revision.facts} & set(value))
    if not isinstance(value, str):
        return value
    try:
        values.check(value[:LONGEST])
    except BadValue as error:
        raise Unfit({name: error.message}) from None
    return value[:LONGEST]


def forget(person: User, request: Request) -> None:
    Draft.objects.filter(revision__request=request, person_id=str(person.pk)).delete()
