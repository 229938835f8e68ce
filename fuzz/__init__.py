"""Coverage-guided fuzzing, run by hand or by night: `python -m fuzz.decode --seconds 60`."""
