"""Run seeds of the simulated world, replay a plan, leave of it what is needed to fail.

python -m tests.simulation run 0:100            seeds, and how fast they went
python -m tests.simulation run 17 --plan FILE   one seed with the plan in a file (- for stdin)
python -m tests.simulation shrink 17            the smallest plan that still fails, printed

`--nodes 3` runs three nodes, each with clients of its own; `--groups classic` (or consumer) has a
group among them.
"""

import argparse
import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time

from tests.simulation.faults import FaultPlan, shrink
from tests.simulation.world import World

Build = Callable[[int, FaultPlan | None], World]


def failure_of(world: World) -> tuple[frozenset[str], str]:
    """Which invariants broke, or which exception came up; and in words."""
    try:
        world.run()
        violations = world.violations()
    except Exception as error:
        return frozenset({type(error).__name__}), repr(error)
    return frozenset(v.invariant for v in violations), "\n".join(map(str, violations))


def run(build: Build, seeds: range, plan: FaultPlan | None) -> bool:
    """Print what fails, then the speed; whether all went well."""
    failed = 0
    virtual = 0.0
    began = process_time()
    for seed in seeds:
        world = build(seed, plan)
        kinds, message = failure_of(world)
        virtual += world.loop.time()
        if kinds:
            failed += 1
            print(f"{world}\n\nseed {seed} failed: {message}\n")
    used = process_time() - began
    print(
        f"{len(seeds)} seeds, {failed} failed; {used / len(seeds):.3f} CPU s a seed,"
        f" {3600 * len(seeds) / used:.0f} seeds a CPU hour,"
        f" {virtual / used:.0f} virtual seconds a CPU second"
    )
    return not failed


def shrunk(build: Build, seed: int, plan: FaultPlan | None) -> FaultPlan | None:
    """The smallest plan that fails in one of the same ways; None if it does not fail at all."""
    world = build(seed, plan)
    kinds, _ = failure_of(world)
    if not kinds:
        return None
    return shrink(world.plan, lambda tried: bool(kinds & failure_of(build(seed, tried))[0]))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("command", choices=["run", "shrink"])
    parser.add_argument("seeds", help="one seed, or first:last+1")
    parser.add_argument("--plan", help="a file with a plan as it was printed")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--groups", choices=["classic", "consumer"])
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    first, _, last = options.seeds.partition(":")
    seeds = range(int(first), int(last or int(first) + 1))
    plan = None
    if options.plan:
        text = sys.stdin.read() if options.plan == "-" else Path(options.plan).read_text()
        plan = FaultPlan.parse(text)
    build = partial(World, nodes=options.nodes, groups=options.groups)
    if options.command == "run":
        sys.exit(not run(build, seeds, plan))
    smallest = shrunk(build, seeds[0], plan)
    if smallest is None:
        sys.exit(f"seed {seeds[0]} does not fail")
    run(build, seeds[:1], smallest)


if __name__ == "__main__":
    main()
