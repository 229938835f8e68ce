"""The same raw requests to Apache Kafka and to Headrace; the answers compared field by field.

`peer` speaks to one broker and records a transcript, `masks` makes transcripts comparable (ids,
times and addresses become names), `compare` finds the differences, `compatibility` reads which of
them `docs/compatibility.md` allows and why, and the `script_*` modules hold what is sent.
"""
