"""What comments and docstrings put between backticks exists: a name that changed, changed there."""

import builtins
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "headrace"

ELSEWHERE = {
    "Date": "HTTP",
    "NNN.log": "the name of a file, with its number left out",
    "String.hashCode": "Java",
    "StreamingQueryProgress.json": "Spark",
    "fallocate": "Linux",
    "pyspark_headrace": "beside this package",
    "python3": "a command",
    "zipfile": "the standard library, which is not imported there",
}
_QUOTED = re.compile(r"`([A-Za-z_][\w.]*)`")


def names_in(path: Path) -> tuple[set[str], set[tuple[int, str]]]:
    """Those of the code, with the words of its texts (keys, wire fields); and those that comments
    and docstrings quote, with the lines where these begin."""
    known, quoted = {path.stem}, set()
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.NAME:
                known.add(token.string)
            elif token.type == tokenize.COMMENT or '"""' in token.string:
                quoted |= {(token.start[0], name) for name in _QUOTED.findall(token.string)}
            elif token.type == tokenize.STRING:
                known.update(re.findall(r"\w+", token.string))
    return known, quoted


def test_every_name_between_backticks_exists() -> None:
    known = {*dir(builtins), *(path.name for path in SOURCE.parent.rglob("*/"))}
    quoted = []
    for path in sorted(SOURCE.rglob("*.py")):
        names, found = names_in(path)
        known |= names
        quoted += [(path, line, name) for line, name in sorted(found)]
    missing = [
        f"{path.relative_to(ROOT)}:{line}: `{name}`"
        for path, line, name in quoted
        if name not in ELSEWHERE and not known.issuperset(name.split("."))
    ]
    assert missing == []
    unused = ELSEWHERE.keys() - {name for _, _, name in quoted}
    assert unused == set(), "take them off the list"
