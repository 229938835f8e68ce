"""Compaction: keep the newest value of each key, in bounded memory, away from the broker.

    plan         is it worth it, and up to which offset may it go
    request      what the compactor is asked and its result, also as JSON
    compactor    two passes over closed segments: find survivors, write `.cleaned` files
      batches      whole batches of a data file, and the keys inside them
      key_map      newest record of each key, exactly, spilling to disk when memory is short
      rewrite      one batch without the records that go
      cleaned      a new segment under its `.cleaned` names
    swap         put `.cleaned` files in place so that a crash finishes or undoes it
    checkpoint   up to where each partition has been compacted
    worker       the compactor as a process of its own; `runner` starts it

The compactor reads live files and writes new ones beside them; it never renames or removes a
live one. That is left to the log that owns them, through `swap`.
"""
