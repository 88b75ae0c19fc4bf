"""Compile Kafka's message definitions into `src/lakebed/protocol/generated/`.

python tools/compile_protocol.py           write the modules
python tools/compile_protocol.py --check   exit 1 when the committed modules differ from what would be written
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from protocol_compiler.modules import generate

TARGET = Path(__file__).resolve().parent.parent / "src" / "lakebed" / "protocol" / "generated"


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        sys.stderr.write(__doc__ or "")
        return 2
    if not arguments:
        write(TARGET)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        differing = sorted(compare(Path(folder), TARGET))
    for name in differing:
        sys.stderr.write(f"{name} is not what the definitions give. Run python tools/compile_protocol.py\n")
    return 1 if differing else 0


def write(target: Path) -> None:
    """Write every module below `target`, and remove modules that are no longer made."""
    files = generate()
    for stale in (p for p in target.rglob("*.py") if p.relative_to(target).as_posix() not in files):
        stale.unlink()
    for name, text in files.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    readable = [str(target / "messages"), str(target / "index.py")]
    options = ["--line-length", "120", "--isolated", "--quiet"]
    subprocess.run([sys.executable, "-m", "ruff", "format", *options, *readable], check=True)


def compare(made: Path, kept: Path) -> set[str]:
    """Names of modules that differ or exist on one side only."""
    made_texts, kept_texts = _texts(made), _texts(kept)
    return {name for name in made_texts | kept_texts if made_texts.get(name) != kept_texts.get(name)}


def _texts(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.py")}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
