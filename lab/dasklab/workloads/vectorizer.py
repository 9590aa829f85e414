"""Text to features: each document's words are hashed into columns, and the columns of all are added up.

Pure Python that holds the interpreter, on data that is larger than its answer.
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
    """Text that is the same each time it is made."""
    first = part * many
    return [
        " ".join(f"word{(i * words + j) * 7919 % VOCABULARY}" for j in range(words))
        for i in range(first, first + many)
    ]


def count(texts: list[str], columns: int, number: int) -> NDArray[np.int64]:
    """How many words fall into each column; ``number`` moves all of them."""
    found = np.zeros(columns, dtype=np.int64)
    for text in texts:
        for word in text.split():
            found[(zlib.crc32(word.encode()) + number) % columns] += 1
    return found


def add(counts: list[NDArray[np.int64]]) -> float:
    """All words, if none was lost and none came twice."""
    return float(np.sum(counts))


def prepare(
    client: Client, texts: int = 60_000, words: int = 100, parts: int = 60, columns: int = 4_096
) -> Job:
    """Every word of every text is counted once."""
    many = texts // parts
    held = client.map(documents, range(parts), many=many, words=words, pure=False)
    wait(held)

    def run(number: int) -> float:
        counts = client.map(count, held, columns=columns, number=number, pure=False)
        return float(client.submit(add, counts, pure=False).result())

    return Job(run, expected=float(many * parts * words), tasks=parts + 1)


if __name__ == "__main__":
    main(prepare)
