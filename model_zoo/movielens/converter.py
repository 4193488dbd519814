"""MovieLens ratings as records, one each, with what is known of the movie.

A record is a `tf.train.Example` with the integers `user`, `movie`, `year` (0 if the title has none),
`timestamp` (UTC seconds) and `label` (1 for 4 stars or more), and `genres`, a list of texts.

A hash of user and movie decides: a fifth of the ratings are for the test, and records come in the order of
the hash, since the files are sorted by user.  Nothing in a record is computed from other ratings.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edlz.api.example import encode_example
from edlz.model_zoo.conversion.mixing import mixed
from edlz.model_zoo.conversion.shards import DatasetError, Piece, Source
from edlz.model_zoo.conversion.text_files import Row, bad_row, find_file, number_in, read_rows

__all__ = ["read_movielens"]

_RATINGS = ("userId", "movieId", "rating", "timestamp")
_MOVIES = ("movieId", "title", "genres")
_LIKED = 4.0
_TEST_EVERY = 5
_PIECE_RECORDS = 4096
_YEAR = re.compile(r"\((\d{4})\)\s*$")
_NO_GENRES = "(no genres listed)"


class _Movie(NamedTuple):
    year: int
    genres: list[bytes]


def read_movielens(folder: Path | None) -> Source:
    """Read a MovieLens data set from its published files ratings.csv and movies.csv, plain or gzipped.

    Raises
    ------
    DatasetError
        If a file is missing; while it is read, if it is not as published.
    """
    if folder is None:
        raise DatasetError(
            "movielens comes from files of yours, as its terms ask",
            "get ml-latest-small from grouplens.org/datasets/movielens; give its folder as --source",
        )
    ratings, movies = find_file(folder, "ratings.csv"), find_file(folder, "movies.csv")
    return Source(str(folder), _pieces(ratings, movies))


def _pieces(ratings_path: Path, movies_path: Path) -> Iterator[Piece]:
    movies = {}
    for row in read_rows(movies_path, _MOVIES, has_header=True):
        movies[int(number_in(row, 0, "movieId"))] = _movie(row)
    ratings = _ratings(ratings_path, movies)
    hashes = mixed((ratings["user"] << 32) ^ ratings["movie"])
    order = np.argsort(hashes, kind="stable")
    is_test = hashes % _TEST_EVERY == 0
    for part, members in (("train", order[~is_test[order]]), ("test", order[is_test[order]])):
        for first in range(0, len(members), _PIECE_RECORDS):
            yield Piece(part, _records(ratings[members[first : first + _PIECE_RECORDS]], movies))


def _movie(row: Row) -> _Movie:
    year = _YEAR.search(row.cells[1])
    genres = [] if row.cells[2] == _NO_GENRES else row.cells[2].split("|")
    return _Movie(int(year[1]) if year else 0, [genre.encode() for genre in genres])


def _ratings(path: Path, movies: dict[int, _Movie]) -> npt.NDArray[np.void]:
    """Return all ratings: 25 bytes each, as they are sorted by hash and that takes all of them."""
    rows = (_rating(row, movies) for row in read_rows(path, _RATINGS, has_header=True))
    kind = [("user", "i8"), ("movie", "i8"), ("timestamp", "i8"), ("label", "i1")]
    return np.fromiter(rows, np.dtype(kind))


def _rating(row: Row, movies: dict[int, _Movie]) -> tuple[int, int, int, bool]:
    user, movie, rating, timestamp = (number_in(row, i, name) for i, name in enumerate(_RATINGS))
    if int(movie) not in movies:
        raise bad_row(row, f"has movieId {row.cells[1]}, which is not in movies.csv")
    return int(user), int(movie), int(timestamp), rating >= _LIKED


def _records(ratings: npt.NDArray[np.void], movies: dict[int, _Movie]) -> list[bytes]:
    return [
        encode_example(
            {
                "user": user,
                "movie": movie,
                "year": movies[movie].year,
                "timestamp": timestamp,
                "label": label,
                **({"genres": movies[movie].genres} if movies[movie].genres else {}),
            }
        )
        for user, movie, timestamp, label in ratings.tolist()
    ]
