"""What every reviewers' page has in common: signed in, not stored, told apart from its fragments.

What one may not see and what does not exist are the same page.
"""

import re
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from django.shortcuts import render
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.views.decorators.cache import never_cache

from approvals import reviewers
from approvals.exceptions import NotVisible
from approvals.models import Request

View = Callable[..., HttpResponse]
#: The fields of our forms in which people write, by what they are called to them; answers begin with `f-`.
TYPED = {
    "note": "Your note",
    "edited": "Your edit",
    "reason": "Your reason",
    "why": "Your reason",
    "result": "The result",
}


def page(view: View) -> View:
    """A page with action data: signed in, not stored by anybody, fragments told apart from pages."""

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            response = (
                view(request, *args, **kwargs)
                if request.user.is_authenticated
                else signed_out(request, **kwargs)
            )
        except NotVisible:
            response = render(request, "approvals/neutral.html", status=404)
        if response.status_code == 302:
            response.status_code = 303
        patch_vary_headers(response, ["HX-Request"])
        return response

    return never_cache(answer)


def signed_out(request: HttpRequest, *, ref: str = "", **kwargs: Any) -> HttpResponse:
    """To sign-in and back. A form or a script of an open page is answered where it is, so that nothing typed is
    lost: it did nothing, and sign-in never sends it again."""
    if request.method in ("GET", "HEAD") and not is_fragment(request):
        return redirect_to_login(request.get_full_path())
    context = {"typed": typed(request), "next": reverse("request", args=[ref]) if ref else reverse("inbox")}
    return render(request, "approvals/signed_out.html", context, status=401)


def typed(request: HttpRequest) -> list[tuple[str, str]]:
    """What a person wrote into a form that was sent: labels and texts, and nothing that is not for eyes."""
    try:
        sent = list(request.POST.items())
    except (OSError, SuspiciousOperation, MultiPartParserError):  # its body cannot be read
        return []
    return [
        (TYPED.get(name, name.removeprefix("f-")), text)
        for name, text in sent
        if isinstance(text, str) and text and (name in TYPED or name.startswith("f-"))
    ]


def is_fragment(request: HttpRequest) -> bool:
    """Whether htmx wants a part of a page. What it restores from its history is a page."""
    return bool(request.htmx) and not request.htmx.history_restore_request  # type: ignore[attr-defined]


def person_of(request: HttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user


def find(request: HttpRequest, ref: str) -> Request:
    """The request of that ref, if this person may see it. Raises NotVisible."""
    rows = reviewers.visible_to(request.user).select_related("run", "step", "group", "hold")
    found = rows.filter(ref=ref).distinct().first() if ref.isalnum() else None
    if found is None:
        raise NotVisible("It doesn't exist, or isn't assigned to you.")
    return found


def counted(text: str) -> int:
    """The number a version begins with; -1 where it begins with none."""
    digits = re.match(r"[0-9]{1,9}(?![0-9])", text)
    return int(digits[0]) if digits else -1
