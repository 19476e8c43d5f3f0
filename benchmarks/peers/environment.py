"""The peers' virtual environment: made once, by the ordinary pip, of what `requirements.txt` pins.

A copy of that file inside says what it was made of; another one, or a Python that is gone, and it is made anew.
"""

import shutil
import subprocess
import sys
import venv
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
PIP = ("-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-input")


def python(home: Path) -> Path:
    """The Python of the environment below `home`; made if it is not there. Ends the process where pip fails."""
    folder = home / "peers"
    found, stamp = folder / "bin" / "python", folder / "made-of.txt"
    if stamp.exists() and stamp.read_bytes() == REQUIREMENTS.read_bytes() and _starts(found):
        return found
    print(f"Installing the peers into {folder}, once…", file=sys.stderr, flush=True)
    stamp.unlink(missing_ok=True)
    venv.create(folder, clear=True, with_pip=True, symlinks=True)
    if subprocess.run([found, *PIP, "-r", REQUIREMENTS]).returncode != 0:
        sys.exit("The peers could not be installed; `./run bench --without-peers` measures the rest.")
    shutil.copyfile(REQUIREMENTS, stamp)
    return found


def _starts(found: Path) -> bool:
    try:
        return subprocess.run([found, "-c", ""], capture_output=True).returncode == 0
    except OSError:
        return False
