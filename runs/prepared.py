"""Statements that the server prepares: written by hand, or by the ORM once.

On the hot path building an ORM query costs more than the database needs to answer it, and Django has the server
plan each one anew. A `Query` is a queryset with `Given` where its values go: it is compiled at its first use
and from then on executed prepared, with its columns still those of the model. `Batch` asks several in one round
trip, in their order.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import psycopg
from django.db import DEFAULT_DB_ALIAS, connection, connections, models
from django.db.models import Expression, Model, QuerySet
from django.db.models.expressions import DatabaseDefault
from django.db.models.query import get_related_populators
from django.db.models.sql.compiler import SQLCompiler
from django.db.models.sql.subqueries import UpdateQuery
from psycopg.sql import Literal

M = TypeVar("M", bound=Model)
T = TypeVar("T")
Row = tuple[Any, ...]
Values = Sequence[Any] | Mapping[str, Any]


def row(sql: str, values: Values) -> Row | None:
    """Executes one statement; its first row, or None when there is none."""
    return _execute(sql, values).fetchone()


def count(sql: str, values: Values) -> int:
    """Executes one statement; how many rows it touched."""
    return _execute(sql, values).rowcount


def write(sql: str, values: Values, then: Callable[[Row | None], object] = lambda _: None) -> None:
    """Executes one statement; `then` is given its first row. In a `Batch` both wait for its end."""
    cursor = _execute(sql, values)
    if (batch := _open_batch()) is not None:
        batch.afterwards.append(lambda: then(_first(cursor)))
    else:
        then(_first(cursor))


def _first(cursor: psycopg.Cursor[Row]) -> Row | None:
    return cursor.fetchone() if cursor.description else None


def _execute(sql: str, values: Values) -> psycopg.Cursor[Row]:
    ours = connections[DEFAULT_DB_ALIAS]  # `connection` looks it up at every attribute
    ours.ensure_connection()
    if ours.queries_logged:  # as Django's own cursors do
        ours.queries_log.append({"sql": sql, "time": ""})
    with ours.wrap_database_errors:
        cursor = psycopg.Cursor(ours.connection)
        cursor.execute(sql, values, prepare=True)
    ours.health_check_done = True  # type: ignore[attr-defined]  # it answered: nobody has to ask it for that
    return cursor


# -- By the ORM, once --------------------------------------------------------------------


class Given(Expression):
    """The place of a value that comes with the execution, by name; in filters, annotations and changes."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def as_sql(self, compiler: SQLCompiler, connection: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
        return "%s", [self]


class _Text:
    """A statement of the ORM's: constants are in its text, so that partial indexes are found."""

    def __init__(self, compiler: SQLCompiler) -> None:
        text: tuple[str, Sequence[Any]] = compiler.as_sql()
        sql, places = text
        parts = sql.split("%s")
        told = ["%s" if isinstance(place, Given) else _literal(place) for place in places]
        self.sql = "".join(part for pair in zip(parts, [*told, ""], strict=True) for part in pair)
        self.names = [place.name for place in places if isinstance(place, Given)]

    def values(self, given: Mapping[str, Any]) -> list[Any]:
        return [given[name] for name in self.names]

    def execute(self, given: Mapping[str, Any]) -> psycopg.Cursor[Row]:
        return _execute(self.sql, self.values(given))


def _literal(value: Any) -> str:
    connection.ensure_connection()
    return Literal(value).as_string(connection.connection).replace("%", "%%")


class _Read(Generic[T]):
    """A queryset compiled at its first use."""

    def __init__(self, made: Callable[[], QuerySet[Any]]) -> None:
        self.made = made
        self._text: _Text | None = None

    def all(self, **given: Any) -> list[T]:
        return self.read(self.execute(given))

    def first(self, **given: Any) -> T | None:
        found = self.all(**given)
        return found[0] if found else None

    def execute(self, given: Mapping[str, Any]) -> psycopg.Cursor[Row]:
        return (self._text or self._compile()).execute(given)

    def read(self, cursor: psycopg.Cursor[Row]) -> list[T]:
        with connection.wrap_database_errors:
            return self._made_of(self._converted(cursor.fetchall()))

    def _compile(self) -> _Text:
        queryset = self.made()
        self._compiler = compiler = queryset.query.get_compiler(connection=connection)
        self._text = _Text(compiler)
        self._converters = compiler.get_converters([column for column, *_ in compiler.select])
        self._note(queryset, compiler)
        return self._text

    def _note(self, queryset: QuerySet[Any], compiler: SQLCompiler) -> None:
        """What it takes to read a row."""

    def _converted(self, found: list[Row]) -> list[Row]:
        if not self._converters:
            return found
        return [tuple(each) for each in self._compiler.apply_converters(found, self._converters)]

    def _made_of(self, found: list[Row]) -> list[T]:
        raise NotImplementedError


class Rows(_Read[Row]):
    """A queryset made with `values_list`."""

    def _made_of(self, found: list[Row]) -> list[Row]:
        return found


class _AsItIs(Rows):
    """What a statement brings that nothing has to convert."""

    def __init__(self) -> None:
        self._converters: dict[Any, Any] = {}


_AS_IT_IS = _AsItIs()


class Query(_Read[M]):
    """A queryset of whole rows; also with `select_related` and `annotate`."""

    def __init__(self, made: Callable[[], QuerySet[M]]) -> None:
        super().__init__(made)

    def get(self, **given: Any) -> M:
        """Raises the model's DoesNotExist."""
        return one(self.all(**given))

    def _note(self, queryset: QuerySet[Any], compiler: SQLCompiler) -> None:
        self._model: type[M] = queryset.model
        self._fields = [field.attname for field in self._model._meta.concrete_fields]
        self._extra = list((compiler.annotation_col_map or {}).items())
        self._related: list[Any] = get_related_populators(  # type: ignore[call-arg]  # it has three in Django 5
            compiler.klass_info, compiler.select, connection.alias
        )

    def _made_of(self, found: list[Row]) -> list[M]:
        return [self._instance(each) for each in found]

    def _instance(self, found: Row) -> M:
        made = self._model.from_db(connection.alias, self._fields, found[: len(self._fields)])
        for name, place in self._extra:
            setattr(made, name, found[place])
        for related in self._related:
            related.populate(found, made)
        return made


def one(found: list[T]) -> T:
    """The only row. Raises LookupError when there is none."""
    if not found:
        raise LookupError("the row is not there (any more)")
    return found[0]


class Update:
    """An UPDATE of a queryset's rows; `changes` as for `QuerySet.update`, with `Given` in them."""

    def __init__(self, made: Callable[[], QuerySet[Any]], **changes: Any) -> None:
        self._made, self._changes = made, changes
        self._text: _Text | None = None

    def run(self, **given: Any) -> int:
        """How many rows it changed."""
        return self.execute(given).rowcount

    def execute(self, given: Mapping[str, Any]) -> psycopg.Cursor[Row]:
        self._text = self._text or self._compile()
        return self._text.execute(given)

    def write(self, **given: Any) -> None:
        """Where nobody asks how many: in a `Batch` it goes with the others."""
        self._text = self._text or self._compile()
        write(self._text.sql, self._text.values(given))

    def _compile(self) -> _Text:
        query: Any = self._made().query.chain(UpdateQuery)
        query.add_update_values(self._changes)
        return _Text(query.get_compiler(connection=connection))


def insert(made: Model) -> None:
    """Inserts a new row as `save(force_insert=True)` does, without its signals; values are no expressions."""
    given, left, values = [], [], []
    for field, plain in _columns(type(made)):
        value = getattr(made, field.attname) if plain else field.pre_save(made, True)
        if isinstance(value, DatabaseDefault) or (value is None and field.primary_key):
            left.append(field)
            continue
        given.append(field)
        values.append(value if plain else field.get_db_prep_save(value, connection))

    def fill(back: Row | None) -> None:
        for field, value in zip(left, back or (), strict=bool(left)):
            setattr(made, field.attname, value)

    write(_insert_text(type(made), tuple(given), tuple(left)), values, then=fill)
    made._state.adding, made._state.db = False, connection.alias


#: Fields whose values go as they are, of the types that models are given here.
_PLAIN = (models.CharField, models.TextField, models.BooleanField, models.IntegerField, models.UUIDField)


@cache
def _columns(model: type[Model]) -> list[tuple[Any, bool]]:
    """Each column's field, and whether its value goes as it is: asking the field costs more than the rest."""
    return [(field, _is_plain(field)) for field in model._meta.concrete_fields]


def _is_plain(field: Any) -> bool:
    target = field.target_field if field.is_relation else field
    return type(target) in (*_PLAIN, models.AutoField, models.BigAutoField, models.BigIntegerField)


@cache
def _insert_text(model: type[Model], given: tuple[Any, ...], left: tuple[Any, ...]) -> str:
    """`left` to the database: ids that it numbers and its own defaults, which come back."""
    columns = ", ".join(f'"{field.column}"' for field in given)
    places = ", ".join("%s" for _ in given)
    back = ", ".join(f'"{field.column}"' for field in left) or "1"
    return f'INSERT INTO "{model._meta.db_table}" ({columns}) VALUES ({places}) RETURNING {back}'  # noqa: S608


# -- Several at once ----------------------------------------------------------------------


_batches = threading.local()


def _open_batch() -> "Batch | None":
    return getattr(_batches, "open", None)


def afterwards(work: Callable[[], object]) -> None:
    """Does it at the end of the open `Batch`, and at once where there is none: what is not prepared must not come
    between the statements of one (the ORM would be told of too few rows)."""
    if (batch := _open_batch()) is not None:
        batch.afterwards.append(work)
    else:
        work()


class Batch:
    """Several in one round trip, in their order: what is asked of it, and what is inserted and written meanwhile.
    What each brought is there when the block has ended; one that fails ends those after it, and is raised there.
    A batch inside another goes with that one."""

    def __init__(self) -> None:
        self.afterwards: list[Callable[[], object]] = []
        self._stack = ExitStack()
        self._joins = False

    def __enter__(self) -> Self:
        if _open_batch() is not None:
            self._joins = True
            return self
        connection.ensure_connection()
        self._stack.enter_context(connection.wrap_database_errors)
        self._stack.enter_context(connection.connection.pipeline())
        _batches.open = self
        return self

    def ask(self, read: _Read[T], **given: Any) -> "Answer[T]":
        return Answer(read, read.execute(given))

    def change(self, update: Update, **given: Any) -> Callable[[], int]:
        """How many rows it changed, when it is asked."""
        cursor = update.execute(given)
        return lambda: cursor.rowcount

    def row(self, sql: str, values: Values) -> "Answer[Row]":
        """A statement written by hand."""
        return Answer(_AS_IT_IS, _execute(sql, values))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._joins:
            return
        _batches.open = None
        self._stack.__exit__(kind, error, trace)
        if error is None:
            for each in self.afterwards:
                each()


class Answer(Generic[T]):
    def __init__(self, read: _Read[T], cursor: psycopg.Cursor[Row]) -> None:
        self._read, self._cursor = read, cursor

    def all(self) -> list[T]:
        return self._read.read(self._cursor)

    def first(self) -> T | None:
        found = self.all()
        return found[0] if found else None

    def one(self) -> T:
        """Raises LookupError."""
        return one(self.all())
