"""Why a decision was not taken: one exception an answer, each with the code every door gives."""

from typing import Any


class ApprovalsError(Exception):
    """Base. `code` is the word of the table of answers; `status` its HTTP status."""

    code = "conflict"
    status = 409


class NotVisible(ApprovalsError):
    """Unknown, foreign, or the role was lost: one answer for all."""

    code = "not_found"
    status = 404


class NotEligible(ApprovalsError):
    """May see it, may not decide it; the message says why."""

    code = "not_eligible"
    status = 403


class Closed(ApprovalsError):
    """It is not open any more. `code`: decided, expired, withdrawn, superseded, cancelled."""

    def __init__(self, code: str, message: str, *, by: str = "", at: Any = None, verb: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.by = by
        self.at = at
        self.verb = verb


class Stale(ApprovalsError):
    """What was decided on is not what stands now. `checking`: a look at the facts is under way."""

    code = "stale"

    def __init__(
        self, message: str, *, changes: list[dict[str, Any]] | None = None, checking: bool = False
    ) -> None:
        super().__init__(message)
        self.changes = changes or []
        self.checking = checking


class Taken(ApprovalsError):
    """Somebody was first: it is asked, passed on or looked after already; the message says by whom."""

    code = "taken"


class Unchecked(ApprovalsError):
    """All is answered and opened; what is approved has to be looked at once more, on the check page."""

    code = "check_first"


class StepUpRequired(ApprovalsError):
    """They have not shown again who they are: for this, in this session, in the last ten minutes."""

    code = "step_up_required"
    status = 403


class DigestMissing(ApprovalsError):
    code = "digest_missing"
    status = 428


class Unfit(ApprovalsError):
    """The decision does not fit: `errors` maps a field's name to what is wrong with it."""

    code = "invalid"
    status = 422

    def __init__(self, errors: dict[str, str]) -> None:
        super().__init__("; ".join(f"{field}: {text}" for field, text in errors.items()))
        self.errors = errors
