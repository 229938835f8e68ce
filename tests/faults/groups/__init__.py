"""Groups under faults: brokers and members that die or stand still, judged by their histories."""
