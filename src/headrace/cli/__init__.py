"""The command line, `headrace`: one module or package per command.

A command's module is imported only when that command is run (`main` knows where it is), so
`serve` does not pay for the others. Tables for people, `--output json` for programs. Talks to
brokers through `client/` only, and to files on disk through `log/`.

    serve, gateway      a broker, or HTTP and text for a cluster elsewhere, until told to stop
    produce, consume    records in and out; `consume_group` as a member of a group
    topic, group        topics and groups of a cluster
    log, archive        files of a broker, files of records
    pipeline            PySpark pipelines
    top, bench          what a cluster is doing, and how fast it is
    version             which Headrace this is

    main                  finds the command, runs it, turns errors into exit codes
    options, addresses    what several commands are given
    times, sizes          as people write and read them
    output, json_records, consumer_status
                          what commands print
    process, sigterm      stopping in order

Exit codes: 0 done; 1 refused or failed; 2 wrong usage; 3 no broker reached; 130 interrupted;
143 terminated.
"""
