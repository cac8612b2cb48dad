"""The folders of an array job: each rank makes its share of the shards in a folder of its own.

    OUT/rank-0-of-8/    the shards 0, 8, 16, … with their own manifest and journal
    OUT/rank-1-of-8/    the shards 1, 9, 17, …

Ranks do not communicate. The process that writes to OUT itself copies the shards of all ranks into it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pairsmith.core.paths import Place, inside, is_folder

DONE = "rank.json"
"""Name of the file that is written into a rank's folder when the rank's share is finished."""

_NAME = re.compile(r"rank-(\d+)-of-(\d+)")


@dataclass(frozen=True, slots=True)
class Rank:
    """One of ``size`` processes that share the shards of a step; ``number`` counts from 0."""

    number: int
    size: int

    @property
    def name(self) -> str:
        """The name of the rank's folder."""
        return f"rank-{self.number}-of-{self.size}"

    def has(self, shard: int) -> bool:
        """Whether the shard is in this rank's share."""
        return shard % self.size == self.number

    def share_of(self, shards: int) -> int:
        """The number of shards in this rank's share, if there are ``shards`` shards in all."""
        return len(range(self.number, shards, self.size))


def is_rank_folder(path: Place) -> bool:
    """Whether ``path`` has the name of a rank's folder."""
    return rank_in(path) is not None


def rank_in(path: Place) -> Rank | None:
    """The rank whose folder has the name of ``path``; None if it is no rank's name."""
    match = _NAME.fullmatch(path.name)
    return Rank(int(match[1]), int(match[2])) if match else None


def rank_folders(out: Place, within: Sequence[str] = ()) -> list[Place]:
    """The folders of ranks in ``out`` by number, or if ``within`` names a subfolder, that of each rank.

    Folders that do not exist are left out.
    """
    ranks = [(rank, folder) for folder in inside(out) if (rank := rank_in(folder))]
    ranks.sort(key=lambda pair: (pair[0].size, pair[0].number))
    folders = [folder.joinpath(*within) for _, folder in ranks]
    return [folder for folder in folders if is_folder(folder)]


def few_numbers(numbers: Sequence[int]) -> str:
    """The first eight numbers as text for a message, with … for others."""
    return ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")
