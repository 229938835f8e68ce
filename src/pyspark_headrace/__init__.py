"""What Spark looks for: a top-level module `pyspark_*` with a `DefaultSource` registers itself."""

from headrace.spark.format import HeadraceFormat as DefaultSource

__all__ = ["DefaultSource"]
