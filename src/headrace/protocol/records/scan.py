"""Whether every record of a batch is as it should be, without making a record of any.

A produce to a compacted topic looks at each record; nearly always all of them are good. This
loop finds that out in half the time of decoding them, with varints of one and two bytes read in
line. It never says what is wrong: a batch it
does not pass is looked at again, slowly, by whoever must name the culprits.
"""

from headrace.core.errors import InvalidRecord
from headrace.protocol.records.decode import read_long_varint, read_varint


def all_sound(
    data: bytes, count: int, *, keys_required: bool, delta_min: int, delta_max: int
) -> bool:
    """Whether `data` is exactly `count` well-formed records, numbered from 0, within bounds.

    The bounds are those of the timestamp deltas, both included.
    """
    try:
        return _all_sound(data, count, keys_required, delta_min, delta_max)
    except (IndexError, InvalidRecord):
        return False


def _all_sound(
    data: bytes, count: int, keys_required: bool, delta_min: int, delta_max: int
) -> bool:
    position = 0
    end = len(data)
    for index in range(count):
        n = data[position]
        position += 1
        if n > 127:
            more = data[position]
            if more < 128:
                n += (more << 7) - 128
                position += 1
            else:
                n, position = read_long_varint(data, position, n)
        record_end = position + (n >> 1)
        if n & 1 or record_end > end:
            return False
        position += 1  # attributes: none are in use
        n = data[position]
        position += 1
        if n > 127:
            more = data[position]
            if more < 128:
                n += (more << 7) - 128
                position += 1
            else:
                n, position = read_long_varint(data, position, n)
        if not delta_min <= (n >> 1) ^ -(n & 1) <= delta_max:
            return False
        n = data[position]
        position += 1
        if n > 127:
            more = data[position]
            if more < 128:
                n += (more << 7) - 128
                position += 1
            else:
                n, position = read_long_varint(data, position, n)
        if n != index << 1:
            return False
        n = data[position]
        position += 1
        if n > 127:
            more = data[position]
            if more < 128:
                n += (more << 7) - 128
                position += 1
            else:
                n, position = read_long_varint(data, position, n)
        if not n & 1:
            position += n >> 1
        elif keys_required:
            return False
        n = data[position]
        position += 1
        if n > 127:
            more = data[position]
            if more < 128:
                n += (more << 7) - 128
                position += 1
            else:
                n, position = read_long_varint(data, position, n)
        if not n & 1:
            position += n >> 1
        n = data[position]
        position += 1
        if n:
            position = _skip_headers(data, position - 1, record_end)
        if position != record_end:
            return False
    return position == end


def _skip_headers(data: bytes, position: int, end: int) -> int:
    """The position behind a record's headers, or -1 if they are not well formed."""
    count, position = read_varint(data, position)
    if not 0 <= count <= end - position:
        return -1
    for _ in range(count):
        size, position = read_varint(data, position)
        if size < 0:
            return -1
        size, position = read_varint(data, position + size)
        position += max(size, 0)
    return position
