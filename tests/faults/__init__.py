"""Faults on real processes and real files: kills, damaged files, full disks, hostile bytes.

What a power cut does is tried in `tests/simulation`, on a disk that can forget.
"""
