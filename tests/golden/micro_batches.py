"""The rows of micro-batches, as make.py says of `packing`."""


def of(c, lengths):
    """The rows of each micro-batch, as a slice."""
    if c.get("packing") != "rows":
        return [slice(first, first + c["B"]) for first in range(0, len(lengths), c["B"])]
    places, all, first = c["B"] * c["S"], [], 0
    for end in range(1, len(lengths) + 1):
        if sum(length - 1 for length in lengths[first:end]) > places or end - first > max(c["B"], places // 16):
            all.append(slice(first, end - 1))
            first = end - 1
    return all
