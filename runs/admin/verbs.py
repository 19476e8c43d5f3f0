"""Admin actions that are verbs: asked for one object or for a selection, with a reason, reported one by one.

The page that asks changes nothing and says which part of the selection is eligible, and why the rest is
not. What is done is decided again by the verb itself. Every deed has an entry in the admin's log as well.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IS_POPUP_VAR
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from runs import callers, journal
from runs.admin.looking import ModelAdmin
from runs.exceptions import RunsError

AT_ONCE = 100


def _nothing(found: list[Any]) -> dict[Any, str]:
    return {}


def _only_takes(request: HttpRequest, found: Any, why: str) -> str:
    raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Verb:
    """`why_not` says why an object is not eligible ("": it is); `do` does it and says what was done. A verb that
    needs more than a reason has a `form`, and `take` instead of `do`, which gets what was filled in.

    `notes` gives, by primary key, what to know before it is done. `harm` marks what cannot be taken back.
    """

    name: str
    label: str
    hint: str
    why_not: Callable[[Any], str]
    do: Callable[[HttpRequest, Any, str], str] = _only_takes
    notes: Callable[[list[Any]], dict[Any, str]] = _nothing
    harm: bool = False
    form: type["Why"] | None = None
    take: Callable[[HttpRequest, Any, dict[str, Any]], str] | None = None

    def act(self, request: HttpRequest, found: Any, said: dict[str, Any]) -> str:
        return self.take(request, found, said) if self.take else self.do(request, found, said["reason"])


class Why(forms.Form):
    """The reason, which ends up in the journal. A line's end counts as one character, as in the browser."""

    reason = forms.CharField(
        required=False,
        max_length=4000,
        label="Why?",
        help_text="Optional. Kept with what is done.",
        widget=forms.Textarea(attrs={"rows": 3, "cols": 60, "class": "vLargeTextField"}),
    )

    def __init__(self, data: Any = None, found: Sequence[Any] = ()) -> None:
        given = None if data is None else {name: data.get(name, "") for name in self.base_fields}
        if given is not None:
            given["reason"] = str(given["reason"]).replace("\r\n", "\n")
        super().__init__(given, label_suffix="")

    def more(self) -> list[forms.BoundField]:
        """What it asks besides the reason."""
        return [field for field in self.visible_fields() if field.name != "reason"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One object of a selection, as the page that asks shows it."""

    object: Any
    why_not: str
    note: str


class WithVerbs(ModelAdmin):
    """A ModelAdmin with `verbs`, for those who `may_act`. `refusals`: what verbs raise when they refuse."""

    verbs: tuple[Verb, ...] = ()
    refusals: tuple[type[Exception], ...] = (RunsError,)

    def may_act(self, request: HttpRequest) -> bool:
        return callers.of(request).operator

    # -- A selection -------------------------------------------------------------------

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        if IS_POPUP_VAR in request.GET or not self.may_act(request):
            return {}
        return {verb.name: (_on_selection(verb), verb.name, verb.label) for verb in self.verbs}

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Any], *args: Any
    ) -> HttpResponse | None:
        try:
            return super().response_action(request, queryset, *args)
        except ValidationError:
            self.message_user(request, "There is nothing like what was selected.", messages.WARNING)
            return None

    # -- One object --------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.verb_view)
        name = f"{self.opts.app_label}_{self.opts.model_name}_do"
        return [path("<path:object_id>/do/<slug:name>/", view, name=name), *super().get_urls()]

    def verb_view(self, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
        """The page that asks (GET), and the deed (POST), for one object."""
        verb = next((each for each in self.verbs if each.name == name), None)
        found = self.get_object(request, unquote(object_id))
        if not self.may_act(request):
            if verb and found and request.method == "POST" and self.has_view_permission(request, found):
                _journal_refusal(request, found, verb, "forbidden")
            raise PermissionDenied
        if verb is None or found is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined, no-any-return]
        back = reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=[object_id])
        return self.ask(request, verb, [found], back=back, confirmed=request.method == "POST")

    def buttons(self, request: HttpRequest, found: Any) -> list[tuple[str, str, bool]]:
        """Label, address and whether it does harm, of each verb that is possible now."""
        if not self.may_act(request):
            return []
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_do"
        able = [verb for verb in self.verbs if not verb.why_not(found)]
        return [(verb.label, reverse(name, args=[quote(found.pk), verb.name]), verb.harm) for verb in able]

    # -- Asking and doing ----------------------------------------------------------------

    def ask(
        self, request: HttpRequest, verb: Verb, found: list[Any], *, back: str, confirmed: bool
    ) -> HttpResponse:
        form = (verb.form or Why)(request.POST if confirmed else None, found)
        if confirmed and form.is_valid():
            for each in found:
                self._attempt(request, verb, each, form.cleaned_data)
            return redirect(back)
        notes = verb.notes(found)
        candidates = [Candidate(each, verb.why_not(each), notes.get(each.pk, "")) for each in found]
        context = {
            **self.admin_site.each_context(request),
            "title": verb.label,
            "opts": self.opts,
            "verb": verb,
            "form": form,
            "eligible": [each for each in candidates if not each.why_not],
            "others": [each for each in candidates if each.why_not],
            "selected": request.POST.getlist(ACTION_CHECKBOX_NAME),
            "checkbox": ACTION_CHECKBOX_NAME,
            "back": back,
        }
        return TemplateResponse(request, "admin/verb.html", context, status=422 if confirmed else 200)

    def _attempt(self, request: HttpRequest, verb: Verb, found: Any, said: dict[str, Any]) -> None:
        """Does it to one, in a transaction of its own, and says what came of it."""
        refused = verb.why_not(found)
        if not refused:
            try:
                with transaction.atomic():
                    done = verb.act(request, found, said)
                    why = f": {said['reason']}" if said["reason"] else ""
                    self.log_change(request, found, f"{verb.label}{why}")
            except self.refusals as error:
                refused = _sentence(error)
                _journal_refusal(request, found, verb, getattr(error, "code", None) or "wrong_state")
        if refused:
            self.message_user(request, f"{found}: not done. {refused}", messages.WARNING)
        else:
            self.message_user(request, f"{found}: {done}", messages.SUCCESS)


def _on_selection(verb: Verb) -> Callable[[WithVerbs, HttpRequest, QuerySet[Any]], HttpResponse | None]:
    def act(door: WithVerbs, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        found = list(queryset[: AT_ONCE + 1])
        if len(found) > AT_ONCE:
            door.message_user(request, f"At most {AT_ONCE} at a time; nothing was done.", messages.WARNING)
            return None
        back = request.get_full_path()
        return door.ask(request, verb, found, back=back, confirmed="confirmed" in request.POST)

    return act


def _journal_refusal(request: HttpRequest, found: Any, verb: Verb, code: str) -> None:
    """In the journal of what it was about, where that has one."""
    if hasattr(found, "stream"):
        who = replace(callers.of(request).actor, door="admin")
        with transaction.atomic():
            journal.write(found, who, "refused", asked=verb.name, code=code)


def _sentence(error: Exception) -> str:
    said: Iterable[str] = error.messages if isinstance(error, ValidationError) else [str(error)]
    text = " ".join(said)
    return f"{text[:1].upper()}{text[1:]}".rstrip(".") + "."
