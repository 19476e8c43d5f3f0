"""The gateway in a process of its own, and an agent driven without the machinery that would record it."""

import pytest

from examples.gateway.running import RunningGateway


@pytest.fixture
def gateway(tmp_path, settings):
    """A fresh gateway on a port of its own; the tools speak to it."""
    running = RunningGateway(tmp_path / "gateway.sqlite3")
    settings.GATEWAY_URL = running.url
    yield running
    if running.process.poll() is None:
        running.stop()
