"""Write constraints.txt: the version and hashes of everything the checkout installs.

Run it (`make lock`) after a change of dependencies in pyproject.toml, or to move to newer
versions. It records names, versions and hashes, never an address: where packages come from is
the business of whoever installs them.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
HEADER = """\
# Made by scripts/lock.py from pyproject.toml. Versions and hashes only; no addresses.
"""


def wanted() -> list[str]:
    """Direct requirements: of the package, its extras and the dev group."""
    tree = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = tree["project"]
    extras = [line for lines in project.get("optional-dependencies", {}).values() for line in lines]
    return [*project["dependencies"], *extras, *tree["dependency-groups"]["dev"]]


def compile_lock(requirements: list[str], directory: Path) -> str:
    """Resolve for all supported Pythons and platforms at once (uv's universal resolution)."""
    source, target = directory / "requirements.in", directory / "constraints.txt"
    source.write_text("\n".join(requirements) + "\n")
    options = ["--universal", "--generate-hashes", "--no-header", "--no-annotate", "--upgrade"]
    quiet = ["--no-emit-index-url", "--no-emit-find-links", "--quiet"]
    command = [sys.executable, "-m", "uv", "pip", "compile", "--python-version", "3.11"]
    subprocess.run([*command, *options, *quiet, "-o", str(target), str(source)], check=True)
    return target.read_text()


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        text = compile_lock(wanted(), Path(directory))
    if re.search(r"://|^--", text, flags=re.MULTILINE):
        sys.exit("the resolver wrote an address or an option; constraints.txt is left as it was")
    CONSTRAINTS.write_text(HEADER + text)
    print(f"{CONSTRAINTS.name}: {len(re.findall('==', text))} packages")


if __name__ == "__main__":
    main()
