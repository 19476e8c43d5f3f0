"""Forms made from JSON Schema: the arguments of a call to edit, the answer to a question.

Every field is text as the person sees it, and a field that was not touched keeps its value, type and all: only
what differs from what was shown is read again. Nothing is localised: numbers are digits, a point, and no more.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from django import forms

from runs import values
from runs.exceptions import BadValue

INTEGER = re.compile(r"-?[0-9]{1,4000}")
DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?")
RIGHT = "a number such as 1234.50, with a point and without spaces"
LONG = 80
PLAIN = frozenset({"string", "integer", "number", "boolean"})


class SchemaForm(forms.Form):
    """Fields by the properties of an object schema; `value()` is the object as edited.

    `titled`: labelled by the properties' titles, as a question's author wrote them, else by their names.
    """

    def __init__(
        self,
        schema: Mapping[str, Any],
        *,
        initial: Mapping[str, Any] | None = None,
        data: Mapping[str, Any] | None = None,
        titled: bool = False,
    ) -> None:
        self.schema = schema
        self.was = dict(initial or {})
        self._kinds: dict[str, Property] = {}
        super().__init__(data, prefix="f")
        for name, described in _in_order(schema):
            found = Property(name, _resolved(schema, described), required=name in schema.get("required", ()))
            self._kinds[name] = found
            self.fields[name] = found.field(self.was.get(name, MISSING))
            if titled:
                self.fields[name].label = described.get("title") or name.replace("_", " ").capitalize()
            self.fields[name].wanted = found.required and not found.nullable  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        for name, found in self._kinds.items():
            if name in self.errors:
                continue
            try:
                self.cleaned_data[name] = found.read(
                    self.cleaned_data.get(name, ""), self.was.get(name, MISSING)
                )
            except ValueError as error:
                self.add_error(name, str(error))
        return self.cleaned_data

    def value(self) -> dict[str, Any]:
        """The whole object: untouched values as they were, absent ones left out."""
        return {name: value for name, value in self.cleaned_data.items() if value is not MISSING}

    def refuse(self, errors: Mapping[str, str]) -> None:
        """Puts errors found later at their fields, those of no field at the top."""
        for name, text in errors.items():
            said = text.replace("Input should", "This should", 1)
            self.add_error(
                name if name in self.fields else None,
                said if name in self.fields else f"{name}: {said}".lstrip(": "),
            )


class _Missing:
    def __repr__(self) -> str:
        return "(left out)"


MISSING = _Missing()


class Property:
    """One property of a schema: how its value is written into a field and read back."""

    def __init__(self, name: str, schema: Mapping[str, Any], *, required: bool) -> None:
        self.name = name
        self.schema = schema
        self.required = required
        self.options = _options(schema)
        kinds = {option.get("type") for option in self.options}
        self.nullable = "null" in kinds
        self.choices = next((option["enum"] for option in self.options if "enum" in option), None)
        self.decimal = {"number", "string"} <= kinds
        plain = kinds - {"null"}
        only = next(iter(plain)) if len(plain) == 1 else None
        self.kind = "decimal" if self.decimal else str(only) if only in PLAIN else "json"

    def field(self, value: Any) -> forms.Field:
        common: dict[str, Any] = {
            "label": self.name,
            "required": False,
            "initial": self.shown(value),
            "help_text": self.hint(),
        }
        if self.choices:
            none = [("", "none")] if self.nullable else []
            options = [*none, *((self.shown(each), str(each)) for each in self.choices)]
            widget: Any = forms.RadioSelect if len(options) <= 6 else forms.Select
            return forms.ChoiceField(choices=options, widget=widget, **common)
        if self.kind == "boolean":
            return forms.ChoiceField(
                choices=[("true", "yes"), ("false", "no")], widget=forms.RadioSelect, **common
            )
        return forms.CharField(strip=False, widget=self._widget(value), **common)

    def _widget(self, value: Any) -> forms.Widget:
        shown = self.shown(value)
        if self.kind == "json" or "\n" in _lines(shown) or len(shown) > LONG:
            rows = min(14, max(3, shown.count("\n") + 1))
            return forms.Textarea(
                attrs={"rows": rows, "spellcheck": "false" if self.kind == "json" else "true"}
            )
        mode = {"integer": "numeric", "number": "decimal", "decimal": "decimal"}.get(self.kind, "text")
        return forms.TextInput(attrs={"inputmode": mode, "autocomplete": "off"})

    def hint(self) -> str:
        kinds = {
            "integer": "A whole number.",
            "number": "A number, with a point for decimals.",
            "decimal": "A number, with a point for decimals.",
            "json": "JSON.",
        }
        said = [self.schema.get("description", ""), kinds.get(self.kind, "")]
        if self.nullable:
            said.append("Empty: none.")
        return " ".join(part for part in said if part)

    def shown(self, value: Any) -> str:
        """The text a field shows for a value."""
        if value is MISSING or value is None:
            return ""
        if isinstance(value, str) and self.kind != "json":
            return value
        if self.kind == "json":
            return json.dumps(value, ensure_ascii=False, indent=2)
        return json.dumps(value, ensure_ascii=False)

    def read(self, text: str, was: Any) -> Any:
        """The value of what stands in the field now. Raises ValueError with what would be right."""
        if _same(text, self.shown(was)) and not (was is MISSING and self.required):
            return was
        if chosen := [each for each in self.choices or () if self.shown(each) == text]:
            return chosen[0]
        if not text.strip() and (self.choices or self.kind != "string" or (self.nullable and not text)):
            return self._empty()
        return self._typed(_line_ends(text, was))

    def _empty(self) -> Any:
        if self.nullable:
            return None
        if not self.required:
            return MISSING
        raise ValueError("This is needed.")

    def _typed(self, text: str) -> Any:
        if self.kind == "string":
            return text
        if self.kind == "boolean":
            return text == "true"
        if self.kind == "integer":
            return int(_matching(INTEGER, text, "a whole number such as 1200"))
        if self.kind == "decimal":
            return _matching(DECIMAL, text, RIGHT)
        try:
            return values.parse(_matching(DECIMAL, text, RIGHT) if self.kind == "number" else text)
        except BadValue as error:
            raise ValueError(f"This is not JSON we can keep: {error}") from None


def _same(text: str, shown: str) -> bool:
    """Browsers send every line end as CR LF; that is no edit."""
    return _lines(text) == _lines(shown)


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _line_ends(text: str, was: Any) -> str:
    """Line ends as the value had them."""
    return text if isinstance(was, str) and "\r\n" in was else _lines(text)


def _matching(pattern: re.Pattern[str], text: str, right: str) -> str:
    stripped = text.strip()
    if not pattern.fullmatch(stripped):
        said = stripped[:60] if stripped.isprintable() else stripped[:60].encode("unicode_escape").decode()
        raise ValueError(f"“{said}” is not {right}.")
    return stripped


def _in_order(schema: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Properties as their author ordered them: canonical JSON sorts keys, but keeps the list of required ones."""
    properties = schema.get("properties", {})
    required = [name for name in schema.get("required", ()) if name in properties]
    return [(name, properties[name]) for name in dict.fromkeys([*required, *properties])]


def _resolved(root: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A property's schema with references followed, its own description kept."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [_resolved(root, option) for option in schema["anyOf"]]}
    if "$ref" not in schema:
        return schema
    target: Any = root
    for part in schema["$ref"].lstrip("#/").split("/"):
        target = target[part]
    return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}


def _options(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The alternatives of a schema; one that is none is its only one."""
    return list(schema.get("anyOf") or schema.get("oneOf") or [schema])
