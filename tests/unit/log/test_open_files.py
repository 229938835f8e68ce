"""The registry of open files against a plain list of them."""

from dataclasses import dataclass
from random import Random

import pytest

from headrace.log.open_files import OpenFiles


@dataclass(eq=False)
class Open:
    path: str


def test_files_are_found_below_every_directory_above_them() -> None:
    registry: OpenFiles[Open] = OpenFiles()
    deep, beside, twice = Open("/d/a/b/file"), Open("/d/ab/file"), Open("/d/a/b/file")
    for file in (deep, beside, twice):
        registry.add(file)
    assert registry.below("/d/a") == registry.below("/d/a/b") == (deep, twice)
    assert set(registry.below("/d")) == {deep, beside, twice}
    assert registry.at("/d/a/b/file") == (deep, twice)
    assert registry.at("/d/a") == registry.below("/d/a/b/file") == ()


@pytest.mark.parametrize("seed", range(20))
def test_the_registry_agrees_with_a_list(seed: int) -> None:
    random = Random(seed)
    registry: OpenFiles[Open] = OpenFiles()
    known: list[Open] = []
    for _ in range(300):
        if known and random.random() < 0.5:
            file = known.pop(random.randrange(len(known)))
            registry.discard(file)
        else:
            depth = random.randint(1, 4)
            file = Open("/" + "/".join(random.choice("abc") for _ in range(depth)) + "/f")
            known.append(file)
            registry.add(file)
        directory = "/" + "/".join(random.choice("abc") for _ in range(random.randint(1, 3)))
        assert set(registry.below(directory)) == {
            file for file in known if file.path.startswith(directory + "/")
        }
        assert set(registry.all()) == set(known)
    for file in known:
        registry.discard(file)
    assert not registry._in_directory, "directories without open files are forgotten"
