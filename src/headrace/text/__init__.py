"""The text protocol: lines over plain TCP, for `nc` and for learning.

    $ nc localhost 7070
    PUBLISH orders hello
    OK partition=0 offset=0

Lines are read into commands, run one after the other on the gateway, and answered in order. What
a client can make the broker hold is bounded. Rules about topics, offsets and groups are not made
here: the gateway's are.

    server, connection, settings    who is connected, bytes in and out, the bounds
    lines, tokenizer                bytes into requests
    options, offset_spec            what a command may be told
    session, output                 the commands of one connection in their order, and its other end
    consume, membership, group_commands
                                    what the longer commands do
    responses                       the lines that are sent back
"""
