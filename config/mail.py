"""Mail where no server is named: one file a message under `var/mail`, and one line in the log.

The files may hold what reviewers are shown, so the folder is the owner's alone. With `EMAIL_URL`
set this room is not used.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import structlog
from django.conf import settings
from django.core.mail import EmailMessage
from django.core.mail.backends.base import BaseEmailBackend

log = structlog.get_logger("mail")


class Files(BaseEmailBackend):
    """Writes each message as an `.eml` file that any mail program opens; newest name sorts last."""

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        folder = Path(settings.EMAIL_FILE_PATH)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for message in email_messages:
            path = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}-{uuid4().hex[:8]}.eml"
            _write(path, message.message().as_bytes())
            log.info("mail written", to=", ".join(message.recipients()), file=str(path))
        return len(email_messages)


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all: whoever watches the folder never reads half a message."""
    partial = path.with_suffix(".part")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    partial.rename(path)
