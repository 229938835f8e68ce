"""The command line: `headrace serve`, `topic`, `produce`, `consume`, `log`, `bench`, `version`.

A file per command; a command's module is imported only when that command is run, so `serve`
does not pay for the others. Tables for people, `--output json` for programs. Talks to brokers
through `client/` only, and to files on disk through `log/`.

Exit codes: 0 done; 1 refused or failed; 2 wrong usage; 3 no broker reached; 130 interrupted;
143 terminated.
"""
