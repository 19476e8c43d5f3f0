"""Admin pages that only look: lists that stay fast on large tables, and one page of named rows an object.

`Looking` refuses to add, change and delete, whoever asks. Its page is drawn by our own template from `shown`,
so that every text from outside goes through the reveal function and JSON is a tree.
"""

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import FieldDoesNotExist, PermissionDenied
from django.core.paginator import Paginator
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.text import capfirst

from runs import callers, clock

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
    Filter = admin.SimpleListFilter
    Pages = Paginator[Any]
else:
    Base, Filter, Pages = admin.ModelAdmin, admin.SimpleListFilter, Paginator

UNSEEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
#: What no page shows is no filter of a list either: `?password__startswith=` would tell it letter by letter.
SECRET = frozenset({"password", "hashed_key", "token"})


class ModelAdmin(Base):
    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return not SECRET & set(lookup.split("__")) and super().lookup_allowed(lookup, value, request)  # type: ignore[arg-type]


class Capped(Pages):
    """Counts no further than people page; a count over everything would read the whole table."""

    LIMIT = 10_000

    @cached_property
    def count(self) -> int:
        found: Any = self.object_list
        return int(found.order_by()[: self.LIMIT + 1].count())

    @property
    def is_capped(self) -> bool:
        return self.count > self.LIMIT


@dataclass(frozen=True, slots=True)
class Row:
    """One line of an object's page. `kind` is how it is drawn: text, code, time, json, value or link."""

    label: str
    kind: str
    value: Any
    url: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    rows: list[Row]


class Looking(ModelAdmin):
    """Everybody who `may_look` sees; nobody adds, changes or deletes.

    `shown` are the sections of an object's page: a title, and names of fields or of methods here. `as_json`
    are text fields that hold JSON, `as_code` digests and keys.
    """

    actions: Any = None
    list_per_page = 50
    show_full_result_count = False
    paginator = Capped
    sortable_by = ()
    show_facets = admin.ShowFacets.NEVER
    list_select_related: ClassVar[Any] = True

    shown: Sequence[tuple[str, Sequence[str]]] = ()
    as_json: frozenset[str] = frozenset()
    as_code: frozenset[str] = frozenset({"id"})
    look_template = "admin/look.html"

    # -- Rights --------------------------------------------------------------------

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """None also for what the database cannot look for."""
        return None if "\x00" in object_id else super().get_object(request, object_id, from_field)

    def may_look(self, request: HttpRequest) -> bool:
        return callers.of(request).sees_all

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.may_look(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may_look(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        title = {"title": capfirst(self.opts.verbose_name_plural)}
        return super().changelist_view(request, {**title, **(extra_context or {})})

    # -- One object ------------------------------------------------------------------

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        found = self.get_object(request, unquote(object_id))
        if found is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined, no-any-return]
        context = {
            **self.admin_site.each_context(request),
            "title": self.title(found),
            "opts": self.opts,
            "object": found,
            "now": clock.now(),
            "sections": self.sections(found),
            "related": self.related(found),
            **self.more(request, found),
            **(extra_context or {}),
        }
        return TemplateResponse(request, self.look_template, context)

    def title(self, found: Any) -> str:
        said, noun = str(found), str(self.opts.verbose_name)
        return visible(str(capfirst(said)) if said.startswith(noun) else f"{capfirst(noun)} {said}")

    def sections(self, found: Any) -> list[Section]:
        return [Section(title, [self._row(found, name) for name in names]) for title, names in self.shown]

    def related(self, found: Any) -> list[tuple[str, str]]:
        """Labels and addresses of what belongs to it."""
        return []

    def more(self, request: HttpRequest, found: Any) -> dict[str, Any]:
        """What an object's own template needs besides."""
        return {}

    def _row(self, found: Any, name: str) -> Row:
        try:
            field = self.opts.get_field(name)
        except FieldDoesNotExist:
            method = getattr(self, name)
            return Row(method.short_description, "text", method(found))
        label, value = capfirst(getattr(field, "verbose_name", name)), getattr(found, name)
        if value in (None, "") or isinstance(value, bool):
            return Row(label, "text", {True: "yes", False: "no"}.get(value, ""))
        return Row(label, *self._drawn(field, name, value))

    def _drawn(self, field: Any, name: str, value: Any) -> tuple[str, Any, str]:
        if isinstance(field, models.ForeignKey):
            return "link", value, self.address(value)
        if isinstance(field, models.BinaryField):
            return "code", bytes(value).hex(), ""
        kinds: list[tuple[bool, str]] = [
            (isinstance(field, models.DateTimeField), "time"),
            (isinstance(field, models.JSONField), "value"),
            (name in self.as_json, "json"),
            (name in self.as_code, "code"),
        ]
        return next((kind for fits, kind in kinds if fits), "text"), value, ""

    def address(self, found: models.Model) -> str:
        """Where the admin shows another object; empty where it does not."""
        return address(found) if self.admin_site.is_registered(type(found)) else ""


def address(found: models.Model) -> str:
    """An object's page in the admin."""
    meta = found._meta
    return reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[quote(found.pk)])


def list_of(model: type[models.Model], **lookups: object) -> str:
    """The address of a model's list, filtered."""
    meta = model._meta
    query = urlencode(lookups, safe=":")
    return reverse(f"admin:{meta.app_label}_{meta.model_name}_changelist") + (f"?{query}" if query else "")


# -- Columns and filters -------------------------------------------------------------


def visible(text: str) -> str:
    """A text from outside for a title or a list, which show plain text: what cannot be seen is named."""
    return "".join(f"⟦U+{ord(c):04X}⟧" if unicodedata.category(c) in UNSEEN else c for c in text)


def said(name: str, label: str) -> Callable[[Any, Any], str]:
    """A column with a text from outside."""

    @admin.display(description=label, empty_value="–")
    def column(self: Any, found: Any) -> str:
        return visible(str(getattr(found, name)))

    return column


def moment(name: str, label: str) -> Callable[[Any, Any], str]:
    """A column with a time in UTC, to the second."""

    @admin.display(description=label, empty_value="–")
    def column(self: Any, found: Any) -> str:
        at: datetime | None = getattr(found, name)
        return f"{at.astimezone(UTC):%-d %b %Y %H:%M:%S}" if at else ""

    return column


def link(label: str, name: str, text: Callable[[Any], str] = str) -> Callable[[Any, Any], str]:
    """A column that leads to a related object. `text` makes its words, of ids and registered names only."""

    @admin.display(description=label, empty_value="–")
    def column(self: Any, found: Any) -> str:
        target = getattr(found, name)
        return "" if target is None else format_html('<a href="{}">{}</a>', address(target), text(target))

    return column


def pill(name: str, label: str) -> Callable[[Any, Any], str]:
    """A column with a word of a fixed vocabulary, in its own tone."""

    @admin.display(description=label, empty_value="–")
    def column(self: Any, found: Any) -> str:
        word = getattr(found, name)
        if not word:
            return ""
        return format_html('<span class="word word-{}">{}</span>', word, word.replace("_", " "))

    return column


def within(prefix: str, field: str = "pk") -> dict[str, str] | None:
    """Lookups for ids that begin with these digits, which an index can serve. None: they are no id's."""
    digits = prefix.replace("-", "").lower()
    if not 4 <= len(digits) <= 32 or set(digits) - set("0123456789abcdef"):
        return None
    return {f"{field}__gte": digits.ljust(32, "0"), f"{field}__lte": digits.ljust(32, "f")}


class ById(Looking):
    """A list whose search takes an id, or its first digits; anything else goes to `search_fields`."""

    id_lookup = "pk"
    search_fields = ("pk",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        wanted = within(search_term.strip(), self.id_lookup)
        if wanted and (found := queryset.filter(**wanted)).exists():
            return found, False
        return self.search_words(queryset, search_term.strip()), False

    def search_words(self, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        return queryset.none() if term else queryset
