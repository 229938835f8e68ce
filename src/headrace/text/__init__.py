"""The text listener: lines over plain TCP, for `nc` and for learning.

    $ nc localhost 7070
    PUBLISH orders hello
    OK partition=0 offset=0

Lines are read into commands (`lines`, `words`), run one after the other on the gateway
(`session`), and answered in order. What a client can make the broker hold is bounded
(`settings`). Rules about topics, offsets and groups are not made here: the gateway's are.
"""
