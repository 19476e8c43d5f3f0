"""What the pairs stand on."""

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def unhurried(settings: Any) -> None:
    """Workers stand at points here, and several have runs in one process: no lease runs out and no slice ends
    because the machine is busy."""
    settings.LEASE = settings.SLICE = 60.0
