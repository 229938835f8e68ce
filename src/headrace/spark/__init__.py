"""Headrace in PySpark: `format("headrace")` as source and sink, and pipelines over it.

    spark.read.format("headrace").option("kafka.bootstrap.servers", servers)...
    spark.readStream.format("headrace")...

Option names and columns are those of Spark's Kafka connector, so a job moves by changing the
format's name. Nothing runs in the JVM and nothing is to be registered: the module
`pyspark_headrace` beside this package is found by Spark itself. The package runs on executors,
where no broker is installed, so it uses the client and what lies below it, and nothing else of
Headrace.
"""
