"""The whole broker: builds every package's part from a config, starts them, stops them in reverse.

Offers `Node` (in `node.node`) and `real_node`, a node on the real disk, clock and threads. The
real forms of time, randomness and threads live here; the simulated ones in `tests/simulation`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.core.broker_configs import BrokerConfig
    from headrace.node.node import Node


def real_node(config: "BrokerConfig") -> "Node":
    """A node on the real disk, clock and threads; to be started on a running loop."""
    # Imported late: who only reads a config need not load a broker.
    from headrace.log.compaction.runner import ProcessCompactor
    from headrace.log.descriptor_io import raise_open_file_limit
    from headrace.log.real_files import RealFileSystem
    from headrace.node.descriptors import divide
    from headrace.node.node import Node
    from headrace.node.system import RealClock, RealRandomness, ThreadExecutor

    shares = divide(raise_open_file_limit())
    return Node(
        config,
        files=RealFileSystem(shares.files),
        clock=RealClock(),
        randomness=RealRandomness(),
        executor=ThreadExecutor(),
        compactor=ProcessCompactor(),
        descriptors=shares,
    )
