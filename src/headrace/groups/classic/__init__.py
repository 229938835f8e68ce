"""Groups of the classic protocol: members join, one of them assigns, all sync, then heartbeat.

    Empty --join--> PreparingRebalance --all joined--> CompletingRebalance --sync--> Stable
      ^                  ^   |                              |                         |
      |                  |   +--nobody left--> Empty        |                         |
      +------------------+------------join, leave, timeout--+-------------------------+

`group` is the state (`member` of one member), `rebalance` the way from one generation to the next,
`joining`, `syncing` and `leaving` the requests, `expiry` what happens when time runs out. The
assignment itself is made by the member that leads the group and is opaque here.
"""
