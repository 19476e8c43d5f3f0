#!/usr/bin/env python
"""Django's own command line; `./run` prepares the environment and calls it."""

import os
import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from environs import EnvValidationError


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        execute_from_command_line(sys.argv)
    except EnvValidationError as wrong:
        sys.exit("\n".join(["The environment is not right:", *_lines(wrong)]))
    except ImproperlyConfigured as wrong:
        sys.exit(f"The environment is not right:\n  {wrong}")


def _lines(wrong: EnvValidationError) -> list[str]:
    return [f"  {name}: {' '.join(map(str, said))}" for name, said in wrong.error_messages.items()]


if __name__ == "__main__":
    main()
