"""Where log lines go and what they look like: standard output, one line an event.

structlog's own loggers and the standard library's (Django, RQ, gunicorn) meet in one formatter.
`text` is for people, `json` for machines. Nothing here knows what an event means.
"""

from typing import Any

import structlog

from runs import redaction

_SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def settings(*, level: int | str, style: str) -> dict[str, Any]:
    """The dictionary for Django's LOGGING; also points structlog at it."""
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": _formatter, "style": style}},
        "handlers": {
            "stdout": {
                "class": "logging.StreamHandler",
                "stream": "ext://sys.stdout",
                "formatter": "line",
            }
        },
        "root": {"handlers": ["stdout"], "level": level},
        "loggers": {
            # Django gives these two handlers of their own; ours at the root is the only one.
            "django": {"handlers": [], "level": level, "propagate": True},
            "django.server": {"handlers": [], "level": level, "propagate": True},
            # A GET of what is not there is the visitor's news, not ours.
            "django.request": {"level": "ERROR"},
            "httpx": {"level": "WARNING"},
        },
    }


def _formatter(style: str) -> structlog.stdlib.ProcessorFormatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_SHARED,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            *(_JSON if style == "json" else _TEXT),
            _scrub,
        ],
    )


def _scrub(logger: Any, method: str, line: Any) -> str:
    """The last word on every line, tracebacks included: no secret of this process."""
    return redaction.scrub(str(line))


_JSON: list[Any] = [
    # Locals would show what is handed to tools, cut off in places where nobody recognises it any more.
    structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False)),
    structlog.processors.JSONRenderer(),
]
_TEXT: list[Any] = [
    structlog.processors.format_exc_info,
    structlog.processors.LogfmtRenderer(
        key_order=["timestamp", "level", "logger", "event"], bool_as_flag=False
    ),
]
