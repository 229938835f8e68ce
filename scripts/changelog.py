"""Join the fragments of changelog.d/ into CHANGELOG.md.

A change brings one fragment, `changelog.d/NAME.KIND.md` with KIND one of added, changed, fixed:
two changes then never meet in the same lines. Without an argument the section "Unreleased" is
written anew; with a version it becomes that version's section and the fragments go.
"""

import argparse
import re
import sys
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHANGELOG = ROOT / "CHANGELOG.md"
FRAGMENTS = ROOT / "changelog.d"
KINDS = ("added", "changed", "fixed")
UNRELEASED = "## Unreleased\n"
HEAD = "# Changelog\n\nWhat changed for users, newest first.\n\n"


def section(fragments: list[Path]) -> str:
    """The fragments as lists below their kinds."""
    lines = []
    for kind in KINDS:
        texts = [
            each.read_text().strip() for each in fragments if each.name.endswith(f".{kind}.md")
        ]
        if texts:
            lines.append(f"### {kind.capitalize()}\n")
            lines += [f"- {' '.join(text.split())}" for text in texts]
            lines.append("")
    return "\n".join(lines)


def find_fragments() -> list[Path]:
    """Sorted by name; a name without a known kind is refused."""
    found = sorted(FRAGMENTS.glob("*.md"))
    strangers = [
        each.name for each in found if not each.name.endswith(tuple(f".{k}.md" for k in KINDS))
    ]
    if strangers:
        sys.exit(f"changelog.d: {', '.join(strangers)}: name it NAME.{'|'.join(KINDS)}.md")
    return found


def released(text: str) -> str:
    """What an existing changelog says about versions that are out."""
    match = re.search(r"^## \d.*", text, flags=re.MULTILINE | re.DOTALL)
    return match.group() if match else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", nargs="?", help="release the fragments under this version")
    version = parser.parse_args().version
    fragments = find_fragments()
    before = released(CHANGELOG.read_text()) if CHANGELOG.exists() else ""
    title = f"## {version} ({date.today().isoformat()})\n" if version else UNRELEASED
    CHANGELOG.write_text(f"{HEAD}{title}\n{section(fragments)}\n{before}".rstrip() + "\n")
    for each in fragments if version else ():
        each.unlink()


if __name__ == "__main__":
    main()
