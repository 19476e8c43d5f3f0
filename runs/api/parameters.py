"""Query parameters and headers in: each known by name, given as often as it may be, of the right shape.

What is unknown or does not fit is refused by name, with what the address takes. Nothing is guessed.
"""

import re
from typing import Any, TypeVar, get_origin

from django.http import QueryDict
from pydantic import ValidationError
from rest_framework.request import Request

from runs import values
from runs.api.problem import Refused
from runs.exceptions import BadValue
from runs.serializers import Place, Query

Q = TypeVar("Q", bound=Query)
LABEL = "label."
_VISIBLE = re.compile(r"[\x21-\x7e]{1,200}")


def read(given: QueryDict, model: type[Q]) -> Q:
    """The query as `model`. Raises Refused, naming each parameter that is unknown or does not fit."""
    try:
        return model.model_validate(_gather(given, model))
    except ValidationError as error:
        places = [Place(parameter=_name(path), detail=text) for path, text in values.problems(error)]
        raise Refused("bad_parameter", _takes(model), *places) from None


def _takes(model: type[Query]) -> str:
    names = [name if name != "label" else "label.KEY" for name in model.model_fields]
    return f"this address takes the parameters {', '.join(names) or 'none'}"


def _gather(given: QueryDict, model: type[Query]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, several in given.lists():
        _check(name, several)
        field = model.model_fields.get(name)
        if name == "label":
            raise _refuse(name, "written label.KEY=VALUE")
        if field is not None and get_origin(field.annotation) is list:
            found[name] = several
        elif len(several) > 1:
            raise _refuse(name, "given more than once")
        elif name.startswith(LABEL) and "label" in model.model_fields:
            found.setdefault("label", {})[name.removeprefix(LABEL)] = several[0]
        else:
            found[name] = several[0]
    return found


def _check(name: str, several: list[str]) -> None:
    """What the database would refuse: NUL, halves of surrogate pairs."""
    try:
        values.check([name, *several])
    except BadValue as error:
        raise _refuse(name.replace("\x00", "\\x00"), error.message) from None


def _refuse(name: str, detail: str) -> Refused:
    return Refused("bad_parameter", f"{name}: {detail}", Place(parameter=name, detail=detail))


def _name(path: str) -> str:
    """Pydantic's place as a parameter's name: /status/0 is the parameter `status`."""
    return path.split("/")[1].replace("~1", "/").replace("~0", "~")


def idempotency_key(request: Request) -> str | None:
    """The header Idempotency-Key: 1 to 200 visible ASCII characters, or none. Raises Refused."""
    given: str | None = request.headers.get("Idempotency-Key")
    if given is not None and not _VISIBLE.fullmatch(given):
        detail = "1 to 200 visible ASCII characters, without spaces"
        place = Place(header="Idempotency-Key", detail=detail)
        raise Refused("bad_parameter", f"Idempotency-Key: {detail}", place)
    return given
