"""Pipelines: a YAML file that says from which topics, by which steps and into which sinks.

    pipeline = load("clicks.yaml")
    run = pipeline.start(spark)
    run.wait()

The file is read into a `Spec` (no Spark needed), compiled to calls of Spark's API, and those are
printed or carried out. Nothing here schedules anything: Spark runs the queries.
"""

from headrace.spark.pipeline.document import PipelineInvalid, Problem
from headrace.spark.pipeline.pipeline import Pipeline, load

__all__ = ["Pipeline", "PipelineInvalid", "Problem", "load"]
