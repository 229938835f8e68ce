"""Headrace in PySpark: `format("headrace")` as source and sink, and pipelines over it.

    spark.read.format("headrace").option("kafka.bootstrap.servers", servers)...
    spark.readStream.format("headrace")...

Option names and columns are those of Spark's Kafka connector, so a job moves by changing the
format's name. Nothing runs in the JVM and nothing is to be registered: the module
`pyspark_headrace` beside this package is found by Spark itself. The package runs on executors,
where no broker is installed, so it uses the client and what lies below it, and nothing else of
Headrace.

    format, options, connection, sink_options
                             what a job may set, and who serves it
    source, offset_resolver, offsets, fetch
                             which offsets a read has, and their records undecoded
    walk, decode, columns, rows, schema
                             record batches to Arrow columns
    typed, json_values, avro_schema, ddl, bad_values, dead_letters
                             values as columns, and bad ones
    sink, delivery, encode, partitioning
                             rows to topics
    lake, upsert, delta_table, table_source, table_files
                             Delta tables, written and read
    archive                  files of records, checked and replayed
    watermarks, late_rows    rows that come too late, counted
    session, planner_environment, workers, reasons
                             Spark itself: started, made cheaper, understood
    pipeline, progress       pipelines out of a file; how a query is doing
"""
