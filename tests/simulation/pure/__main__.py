"""Run seeds of the pure simulator; see `tests.simulation.pure`."""

import argparse
import logging
import sys
from pathlib import Path
from time import process_time

from tests.simulation.faults import FaultPlan, shrink
from tests.simulation.pure.group_run import GroupRun


def failure_of(run: GroupRun) -> tuple[frozenset[str], str]:
    """Which invariants broke, or which exception came up; and in words."""
    try:
        violations = run.run()
    except Exception as error:
        return frozenset({type(error).__name__}), repr(error)
    return frozenset(v.invariant for v in violations), "\n".join(map(str, violations))


def report(seeds: range, plan: FaultPlan | None) -> bool:
    """Print what fails, then the speed; whether all went well."""
    failed = 0
    began = process_time()
    for seed in seeds:
        run = GroupRun(seed, plan)
        kinds, message = failure_of(run)
        if kinds:
            failed += 1
            print(f"{run}\n\nseed {seed} failed: {message}\n")
    used = process_time() - began
    print(
        f"{len(seeds)} seeds, {failed} failed; {1000 * used / len(seeds):.1f} CPU ms a seed,"
        f" {3600 * len(seeds) / used:.0f} seeds a CPU hour"
    )
    return not failed


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.pure")
    parser.add_argument("seeds", help="one seed, or first:last+1")
    parser.add_argument("--plan", help="a file with a plan as it was printed (- for stdin)")
    parser.add_argument("--shrink", action="store_true", help="print the smallest plan that fails")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    first, _, last = options.seeds.partition(":")
    seeds = range(int(first), int(last or int(first) + 1))
    plan = None
    if options.plan:
        text = sys.stdin.read() if options.plan == "-" else Path(options.plan).read_text()
        plan = FaultPlan.parse(text)
    if options.shrink:
        run = GroupRun(seeds[0], plan)
        kinds, _ = failure_of(run)
        if not kinds:
            sys.exit(f"seed {seeds[0]} does not fail")
        plan = shrink(
            run.plan, lambda tried: bool(kinds & failure_of(GroupRun(seeds[0], tried))[0])
        )
    sys.exit(not report(seeds[:1] if options.shrink else seeds, plan))


if __name__ == "__main__":
    main()
