"""Pipelines: a YAML file that says from which topics, by which steps and into which sinks.

    pipeline = load("clicks.yaml")
    run = pipeline.start(spark)
    run.wait()

The file is read into a `Spec` (no Spark needed), compiled to calls of Spark's API, and those are
printed or carried out. Nothing here schedules anything: Spark runs the queries.

    document, fields, sections, spec_reader, read_source, read_steps, read_sinks, value_columns
                               the file into a `Spec`, with the line of everything that is wrong
    model                      what a `Spec` is made of
    rules, checks              what cannot work, told before Spark is started or before records are
                               read
    compiler, calls, steps, targets, functions, late
                               a `Spec` into calls
    plan_text, frames, run     the calls printed, or carried out in a session
    backfill, filled_ranges    the past through the same steps
    checkpoints, checkpoint_owner, listing, tables
                               what is left of earlier runs
    pipeline                   what a program does with all this
    reference                  the tables of the guide
"""

from headrace.spark.pipeline.document import PipelineInvalid, Problem
from headrace.spark.pipeline.pipeline import Pipeline, load

__all__ = ["Pipeline", "PipelineInvalid", "Problem", "load"]
