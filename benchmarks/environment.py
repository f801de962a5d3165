"""The other contenders' own Python environment, made from requirements-bench.lock when it is missing or out of date."""

import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements-bench.lock"
FOLDER = ROOT / "build" / "bench-venv"


def contenders_python() -> str:
    """The interpreter that Scrapy and the limit version run on."""
    python, stamp = FOLDER / "bin" / "python", FOLDER / ".installed"
    wanted = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"setting up {FOLDER.relative_to(ROOT)} (once) ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(FOLDER)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        subprocess.run([*install, "-r", str(LOCK)], check=True)
        stamp.write_text(wanted)
    return str(python)
