"""The whole broker: builds the parts from a config, starts them, stops them in reverse.

Offers `Node` (in `node.node`, which says what is started in which order) and `real_node`, a node
on the real disk, clock and threads. The simulated forms of those are in `tests/simulation`.

    broker_server, controller_server
                                    the two servers of a node: what each is made of
    config                          a configuration out of a file, the environment and flags
    network, extra_listeners        listening addresses; the HTTP and text listeners
    system, shielded_executor       real time, randomness and threads; calls that are seen to their
                                    end
    log_maintenance, log_cleaner    checkpoints, retention, timed flushes; compaction
    metrics, event_loop_lag, log_lines
                                    what it tells about itself
    descriptors                     who may open how many files
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
