"""What an approval needs by its tier: a basis from R2, and at R3 everything opened, checked and signed for.

It is checked under the locks, on the server's own record of what was opened and of who showed again who they are,
so that every door meets it. Small ones (R1) need nothing of it and cost no statement.
"""

from datetime import timedelta

from approvals.decisions.case import Case
from approvals.exceptions import StepUpRequired, Unchecked, Unfit
from approvals.models import Draft, StepUp
from approvals.presentation import questions, sections

STEP_UP_FOR = timedelta(minutes=10)


def require(case: Case) -> None:
    """What is answered and how they signed is kept in the case. Raises Unfit, Unchecked, StepUpRequired."""
    tier = questions.tier(case.revision)
    if tier not in questions.ASKED:
        return
    high = tier in questions.HIGH
    opened = _opened(case) if high else []
    if errors := (_unopened(case, opened) if high else {}) | _unanswered(case, high=high):
        raise Unfit(errors)
    if high:
        _require_checked(case, opened)
        _require_step_up(case)
        Draft.objects.filter(revision__request=case.request, person_id=str(case.person.pk)).delete()


def _opened(case: Case) -> list[str]:
    """The draft is of the revision they saw, which accepting an unreadable fact has just replaced."""
    seen = {"revision__request": case.request, "revision__digest": case.choice.digest}
    drafts = Draft.objects.filter(**seen, person_id=str(case.person.pk))
    return next(iter(drafts.values_list("opened", flat=True)), [])


def _unopened(case: Case, opened: list[str]) -> dict[str, str]:
    missing = sections.unopened(case.revision, opened)
    return {f"section-{section.name}": f"Open ‘{section.title}’" for section in missing}


def _unanswered(case: Case, *, high: bool) -> dict[str, str]:
    """A no is an answer, but not one to approve with. Who cannot tell may go on at R2, and the record says so; at
    R3 it has to be found out first: by asking, or by somebody who can tell."""
    errors = {}
    for question in questions.of(case.revision, dict(case.choice.basis)):
        answer, field = question.answer, f"basis-{question.id}"
        if answer not in questions.ANSWERS:
            errors[field] = f"Answer ‘{question.text}’"
        elif answer == "no":
            errors[field] = f"You answered No to ‘{question.text}’: reject it, or ask the agent."
        elif answer == "unsure" and high:
            errors[field] = (
                f"You can’t tell ‘{question.text}’: at this tier ask first, or leave it to somebody who can."
            )
        case.basis.append({"id": question.id, "question": question.text, "answer": answer})
    return errors


def _require_checked(case: Case, opened: list[str]) -> None:
    """The check page was sent to them, and they went on from it."""
    given, wanted = case.choice.basis, questions.retype(case.revision)
    if questions.CHECK not in opened or not given.get(questions.CHECK):
        raise Unchecked("Look at it once more on the check page.")
    if wanted is None:
        return
    typed = str(given.get(questions.RETYPE, ""))
    if not wanted.fits(typed):
        raise Unfit({f"basis-{questions.RETYPE}": f"Type {wanted.what} as you read it."})
    case.basis.append({"id": questions.RETYPE, "question": f"Typed: {wanted.what}", "answer": typed})


def _require_step_up(case: Case) -> None:
    """One for this person, session, request, digest and verb, not older than ten minutes; used up by this."""
    choice = case.choice
    bound = {"request": case.request, "person_id": str(case.person.pk), "session": choice.session}
    unused = StepUp.objects.filter(**bound, digest=choice.digest, verb=choice.verb, used_at__isnull=True)
    found = (
        unused.filter(made_at__gt=case.at - STEP_UP_FOR).order_by("made_at").last()
        if choice.session
        else None
    )
    if found is None or not StepUp.objects.filter(pk=found.pk, used_at__isnull=True).update(used_at=case.at):
        raise StepUpRequired("Show again who you are.")
    case.step_up = found.method
