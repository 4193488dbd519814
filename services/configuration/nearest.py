"""Which known names are near a misspelt one.

Used for flags, keys, modules and paths: best first, at most three, none if all are far.
"""

from collections.abc import Iterable, Sequence

__all__ = ["did_you_mean", "edit_distance", "nearest"]

_LIMIT = 3
_MIN_PART = 4  # a shorter word is inside too many names to say anything


def nearest(word: str, names: Iterable[str], limit: int = _LIMIT) -> list[str]:
    """Return the names near `word`, ranked by shared prefix, then by edit distance.

    A name is near if a third of the word's letters or fewer differ, and not twice as many as in another one; or
    if one contains the other.
    """
    distances = {name: edit_distance(word, name) for name in sorted(set(names))}
    most = min(max(1, len(word) // 3), 2 * max(1, min(distances.values(), default=0)))
    ranked = [
        (-_shared_prefix(word, name), distance, name)
        for name, distance in distances.items()
        if distance <= most or _contains(word, name)
    ]
    return [name for _, _, name in sorted(ranked)[:limit]]


def did_you_mean(names: Sequence[str]) -> str:
    """Return `did you mean a, b or c?`, or nothing for no names."""
    if not names:
        return ""
    *first, last = names
    return f"did you mean {', '.join(first)} or {last}?" if first else f"did you mean {last}?"


def edit_distance(a: str, b: str) -> int:
    """Return how many letters must be added, dropped, changed or swapped with their neighbour.

    References
    ----------
    Boytsov, "Indexing methods for approximate dictionary searching", ACM JEA 16 (2011): optimal
    string alignment.
    """
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        older, before, row = before, row, [i]
        for j, right in enumerate(b, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (left != right))
            if i > 1 and j > 1 and left == b[j - 2] and a[i - 2] == right:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1]


def _shared_prefix(a: str, b: str) -> int:
    for length, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return length
    return min(len(a), len(b))


def _contains(word: str, name: str) -> bool:
    return (len(word) >= _MIN_PART and word in name) or (len(name) >= _MIN_PART and name in word)
