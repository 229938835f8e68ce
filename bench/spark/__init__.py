"""Spark beside the official connector: `python -m bench.spark`, every row with its bar."""
