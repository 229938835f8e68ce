"""`format("headrace")`: the one class that Spark knows, and that hands out readers and writers."""

import json

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from headrace.spark.options import source_options
from headrace.spark.schema import source_ddl


class HeadraceFormat(DataSource):
    """Topics as tables and streams; options are those of Spark's Kafka connector."""

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> str | StructType:
        """The columns, as text: types cannot be parsed where Spark calls this."""
        if self._is_table:
            from headrace.spark.table_source import table_schema_json

            return StructType.fromJson(json.loads(table_schema_json(self.options)))
        return source_ddl(self.options)

    @property
    def _is_table(self) -> bool:
        return any(name.lower() == "path" for name in self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Records of topics, or with the option `path` rows of a Delta table."""
        if self._is_table:
            from headrace.spark.table_source import TableReader

            return TableReader(self.options, schema)
        from headrace.spark.source import BatchReader

        return BatchReader(source_options(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        if self._is_table:
            from headrace.spark.table_source import refuse_stream

            refuse_stream()
        from headrace.spark.source import StreamReader

        return StreamReader(source_options(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Rows to a topic, or with the option `path` to a Delta table."""
        if self._is_table:
            from headrace.spark.lake import BatchTableWriter, table_options

            return BatchTableWriter(table_options(self.options, schema, overwrite=overwrite))
        from headrace.spark.sink import BatchTopicWriter
        from headrace.spark.sink_options import topic_sink_options

        return BatchTopicWriter(topic_sink_options(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """The same for a stream; in complete mode (`overwrite`) a table is replaced each batch."""
        if self._is_table:
            from headrace.spark.lake import StreamTableWriter, table_options

            options = table_options(self.options, schema, overwrite=overwrite, streaming=True)
            return StreamTableWriter(options)
        from headrace.spark.sink import StreamTopicWriter
        from headrace.spark.sink_options import topic_sink_options

        return StreamTopicWriter(topic_sink_options(self.options, schema))
