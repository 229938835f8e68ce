"""Variables for the Python of stream planners, in place before several streams start at once.

Spark 4.3 keeps one map of them for each format, shared by all queries of a session. Each stream
puts its four in when it starts, without a lock, and the map travels with every batch that goes to
the format. Two streams that start at the same moment may leave a map behind whose size is not what
it holds: from then on every batch fails by "Task not serializable". A map that has the names
already only gets other values, and is never torn.
"""

import logging
from typing import Final

from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

# What PythonStreamingSourceRunner puts in; it puts in the values too, before it starts a planner.
_NAMES: Final = (
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_LOCAL_DIRS",
    "SPARK_PYTHON_RUNTIME",
)


def define_planner_variables(spark: SparkSession, name: str = "headrace") -> None:
    """Put the names in for a format; where Spark is made otherwise, nothing is changed."""
    if getattr(spark, "_jvm", None) is None:  # over Spark Connect the server's session is not ours
        return
    try:
        formats = spark._jsparkSession.sessionState().dataSourceManager()
        variables = formats.lookupDataSource(name).dataSourceCls().envVars()
        for each in _NAMES:
            variables.putIfAbsent(each, "")
    except Exception as error:  # of Java's side, with no common root
        logger.debug("variables of planners were not settled: error=%s", error)
