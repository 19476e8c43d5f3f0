"""What a reviewer does before an approval, by its tier, for tests that decide without a browser."""

from typing import Any

from django.contrib.auth.models import User

from approvals import drafts
from approvals.models import Revision, StepUp
from approvals.presentation import questions, sections

#: Every basis question answered by yes.
YES = {"1": "yes", "2": "yes", "3": "yes"}


def care(revision: Revision, who: User) -> dict[str, Any]:
    """What an approval needs at the revision's tier: answers; at R3 all is opened, checked and signed for, too."""
    if questions.tier(revision) not in questions.HIGH:
        return {"basis": YES}
    open_all(revision, who)
    step_up(revision, who)
    typed = questions.retype(revision)
    return {
        "basis": {**YES, "check": "yes", "retype": str(typed.value) if typed else ""},
        "session": "a session",
    }


def open_all(revision: Revision, who: User) -> None:
    for section in sections.material(revision):
        drafts.keep(who, revision, open_section=section.name)
    drafts.keep(who, revision, open_section="check")


def step_up(revision: Revision, who: User, **other: Any) -> StepUp:
    bound = {"request": revision.request, "person_id": str(who.pk), "session": "a session"}
    proof = {"digest": revision.digest, "verb": "approve", "method": "totp"}
    return StepUp.objects.create(**{**bound, **proof, **other})
