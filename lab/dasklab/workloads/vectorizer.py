"""Text to features: the words of documents are hashed into columns, and the columns of all are summed.

This is pure Python that holds the interpreter, on data that is larger than its result.
"""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

import zlib

import numpy as np
from _harness import Job, main
from distributed import Client, wait
from numpy.typing import NDArray

VOCABULARY = 5_000


def documents(part: int, many: int, words: int) -> list[str]:
    """Return texts that are the same each time."""
    first = part * many
    return [
        " ".join(f"word{(i * words + j) * 7919 % VOCABULARY}" for j in range(words))
        for i in range(first, first + many)
    ]


def count(texts: list[str], columns: int, number: int) -> NDArray[np.int64]:
    """Return the number of words in each column. ``number`` shifts the columns."""
    counts = np.zeros(columns, dtype=np.int64)
    for text in texts:
        for word in text.split():
            counts[(zlib.crc32(word.encode()) + number) % columns] += 1
    return counts


def add(counts: list[NDArray[np.int64]]) -> float:
    """Return the number of all words."""
    return float(np.sum(counts))


def prepare(
    client: Client, texts: int = 60_000, words: int = 100, parts: int = 60, columns: int = 4_096
) -> Job:
    """The answer is the number of words, each counted once."""
    many = texts // parts
    parts_of_text = client.map(documents, range(parts), many=many, words=words, pure=False)
    wait(parts_of_text)

    def run(number: int) -> float:
        counts = client.map(count, parts_of_text, columns=columns, number=number, pure=False)
        return float(client.submit(add, counts, pure=False).result())

    return Job(run, expected=float(many * parts * words), tasks=parts + 1)


if __name__ == "__main__":
    main(prepare)
