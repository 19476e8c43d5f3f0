"""RQ's own dashboard of the queue, for operators, at /admin/rq/.

Its pages carry inline scripts and styles: the one exception to the content security policy, on these routes
only. Nothing is lost by what its buttons do: rows are the truth, and the sweeper rings again.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import django_rq.urls
from csp.constants import UNSAFE_INLINE
from csp.decorators import csp_update
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.urls import URLPattern

from runs import callers

app_name = "django_rq"
INLINE = {"script-src": [UNSAFE_INLINE], "style-src": [UNSAFE_INLINE]}


def _operators_only(view: Callable[..., Any]) -> Callable[..., HttpResponseBase]:
    @wraps(view)
    def shown(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not callers.of(request).operator:
            raise PermissionDenied
        answer: HttpResponseBase = view(request, *args, **kwargs)
        return answer

    return csp_update(INLINE)(admin.site.admin_view(shown))


urlpatterns = [
    URLPattern(known.pattern, _operators_only(known.callback), known.default_args, known.name)
    for known in django_rq.urls.urlpatterns
]
