"""Episodes of a token policy to padded micro-batches: segments, one token stream per unbroken context, then tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookact.batch import Batch, TokenInputs, to_device
from lookact.errors import DataError
from lookact.seeding import numpy_rng
from lookact.types import Episode, Image, Turn

ImageEncoder = Callable[[Sequence[Image]], tuple[Tensor, Tensor]]
"""Images to (patches, d) pixels and (images, 3) grids."""


class Encodes(Protocol):
    """A model that batches are packed for."""

    @property
    def device(self) -> torch.device: ...
    def encode_images(self, images: Sequence[Image], /) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True)
class Segment:
    """Prompt, vision and sampled tokens of consecutive turns, with the sampled ones marked as units."""

    ids: NDArray[np.int64]
    """(n,)"""
    positions: NDArray[np.int64]
    """(u,) where in `ids` each sampled token stands."""
    mask: NDArray[np.bool_]
    """(u,) True where a unit counts."""
    logprobs: NDArray[np.float32]
    """(u,) as sampled."""
    turns: NDArray[np.int64]
    """(u,) turn index within the segment."""
    rewards: NDArray[np.float32]
    """(u,) a turn's reward, on its last unit."""
    images: tuple[Image, ...]
    episode_return: float
    group: int
    terminated: bool
    advantages: NDArray[np.float32]
    """(u,) zeros until they are computed."""


def to_segments(episode: Episode, *, loss_on: str = "action") -> list[Segment]:
    """One segment for every unbroken context of the episode; `loss_on` says which sampled tokens count.

    "action": the tokens of the JSON action, and the one that ends the reply: left untrained, it drifts away, and
    replies grow. "reply": all sampled tokens.
    """
    if loss_on not in ("action", "reply"):
        raise DataError(f"loss_on is {loss_on!r}: choose 'action' or 'reply'")
    runs: list[list[Turn]] = []
    for turn in episode.turns:
        if turn.decision.fresh or not runs:
            runs.append([])
        runs[-1].append(turn)
    starts = np.cumsum([0, *map(len, runs)]).tolist()
    return [
        _segment(run, episode.turns[start - run[0].decision.recalls : start], episode, loss_on, last=run is runs[-1])
        for run, start in zip(runs, starts)
    ]


def _segment(run: Sequence[Turn], recalled: Sequence[Turn], episode: Episode, loss_on: str, *, last: bool) -> Segment:
    ids: list[NDArray[np.int64]] = []
    positions, masks, turns, rewards = [], [], [], []
    length = 0
    for index, turn in enumerate(run):
        decision = turn.decision
        if decision.token_ids is None or decision.prompt_ids is None:
            raise DataError(f"episode {episode.id} holds no token ids: it was not made by a token policy")
        n = len(decision.token_ids)
        start = length + len(decision.prompt_ids)
        ids += [decision.prompt_ids, decision.token_ids]
        positions.append(np.arange(start, start + n))
        # no action found: the whole reply was the mistake, so the whole reply takes the blame
        whole = loss_on == "reply" or decision.mask_method == "failed"
        masks.append(np.ones(n, dtype=bool) if whole else np.append(decision.mask[:-1], decision.mask.any()))
        turns.append(np.full(n, index))
        rewards.append(np.append(np.zeros(n - 1, dtype=np.float32), np.float32(turn.reward)))
        length = start + n
    return Segment(
        ids=np.concatenate(ids),
        positions=np.concatenate(positions),
        mask=np.concatenate(masks),
        logprobs=np.concatenate([turn.decision.logprobs for turn in run]),
        turns=np.concatenate(turns),
        rewards=np.concatenate(rewards),
        images=tuple(image for turn in (*recalled, *run) for image in turn.observation.images.values()),
        episode_return=episode.total_reward,
        group=episode.group,
        terminated=last and episode.terminated,
        advantages=np.zeros(sum(map(len, turns)), dtype=np.float32),
    )


def buckets(lengths: Iterable[int], *, budget: int) -> list[list[int]]:
    """Indices in groups of similar length whose padded size stays within `budget` tokens (at least one each)."""
    sizes = list(lengths)
    groups: list[list[int]] = []
    for index in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        # sorted from long to short, so a group's first row sets its padded width
        if groups and (len(groups[-1]) + 1) * sizes[groups[-1][0]] <= budget:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def micro_batches(policy: Encodes, segments: Sequence[Segment], token_budget: int) -> list[Batch[TokenInputs]]:
    """Rows of similar length together, each batch within `token_budget` padded tokens, on the policy's device."""
    return [batch for _, batch in numbered_batches(policy, segments, token_budget)]


def numbered_batches(
    policy: Encodes, segments: Sequence[Segment], token_budget: int
) -> list[tuple[list[int], Batch[TokenInputs]]]:
    """`micro_batches`, each with the place of its rows among the segments."""
    groups = buckets([len(segment.ids) for segment in segments], budget=token_budget)
    batches = [collate([segments[i] for i in group], policy.encode_images) for group in groups]
    if policy.device.type != "cpu":
        batches = [to_device(batch, policy.device) for batch in batches]
    return list(zip(groups, batches))


def collate(segments: Sequence[Segment], encode_images: ImageEncoder, *, pad_id: int = 0) -> Batch[TokenInputs]:
    """A right-padded batch, whose images stay bytes until a model asks for their pixels."""
    ids = _pad([segment.ids for segment in segments], pad_id)
    lengths = torch.tensor([len(segment.ids) for segment in segments])
    images = tuple(segment.images for segment in segments)
    return Batch(
        inputs=TokenInputs(
            ids=ids,
            attend=torch.arange(ids.shape[1])[None] < lengths[:, None],
            positions=_pad([segment.positions for segment in segments], 0),
            pixels=RowPixels(images, encode_images),
            grids=_grids(images, encode_images),
        ),
        mask=_pad([segment.mask for segment in segments], False),
        logprobs=_pad([segment.logprobs for segment in segments], 0.0),
        turns=_pad([segment.turns for segment in segments], -1),
        rewards=_pad([segment.rewards for segment in segments], 0.0),
        returns=torch.tensor([segment.episode_return for segment in segments]),
        groups=torch.tensor([segment.group for segment in segments]),
        terminated=torch.tensor([segment.terminated for segment in segments]),
        advantages=_pad([segment.advantages for segment in segments], 0.0),
    )


def _pad(rows: Sequence[NDArray[np.generic]], value: float | bool) -> Tensor:
    padded = np.full((len(rows), max(len(row) for row in rows)), value, dtype=rows[0].dtype)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return torch.from_numpy(padded)


@dataclass(frozen=True)
class RowPixels(Sequence[Tensor]):
    """Each row's pixels, made of its images whenever they are asked for: floats would take eight times the room."""

    images: tuple[tuple[Image, ...], ...]
    encode: ImageEncoder

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: Any) -> Any:
        return self.encode(self.images[row])[0]

    def __reduce__(self) -> tuple[Any, ...]:
        # another process has no use for this one's model
        return tuple, (tuple(self),)


def _grids(rows: Sequence[Sequence[Image]], encode: ImageEncoder) -> tuple[Tensor, ...]:
    """Every row's grids, which an image's size decides: one of each size is encoded."""
    known = {image.shape: encode([image])[1] for image in {i.shape: i for row in rows for i in row}.values()}
    none = encode(())[1]
    return tuple(torch.cat([none, *(known[image.shape] for image in row)]) for row in rows)


def shuffled(total: int, size: int, seed: int, epoch: int) -> list[list[int]]:
    """Indices below `total` in an order drawn for this epoch, `size` at a time."""
    order = numpy_rng(seed, "order", epoch).permutation(total).tolist()
    return [order[start : start + size] for start in range(0, total, size)]
