"""The benchmark's own arithmetic: ratios, verdicts, order of runs."""
