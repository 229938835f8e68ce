"""Consumer groups: who reads which partition, and how far each group has come.

Pure machines that take requests and time and return records and answers; `service` alone
appends, waits and keeps timers.
"""
