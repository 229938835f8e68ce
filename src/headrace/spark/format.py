"""`format("headrace")`: the one class that Spark knows, and that hands out readers and writers."""

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from headrace.spark.options import source_options
from headrace.spark.schema import source_ddl


class HeadraceFormat(DataSource):
    """Topics as tables and streams; options are those of Spark's Kafka connector."""

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> str:
        """The columns, as text: types cannot be parsed where Spark calls this."""
        return source_ddl(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from headrace.spark.source import BatchReader

        return BatchReader(source_options(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from headrace.spark.source import StreamReader

        return StreamReader(source_options(self.options, streaming=True), schema)
