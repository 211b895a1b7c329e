"""Keypoint pretraining of a control policy's vision encoder: positions of object and target, relative to the tool.

A tiny DINOv2 is untrained, and a few hundred demonstrations show it as many scenes only. Images of thousands of scenes
are cheap where the true positions are known; the regression head is thrown away. The first pooling queries of each
camera are supervised by keypoints: the first by the object's place in the frame, the second by the target's. Which
object and target are meant only the instruction says, so that the text encoder learns too; word dropout teaches it that
sentences may have words it does not know, and a second loss, to tell what is named, that a colour belongs to the thing
beside it: pictures alone teach that slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from lookact.algorithms.supervised_phase import LossFn, supervised_phase
from lookact.data.packing import shuffled
from lookact.envs.tabletop.pretraining_images import NAMED, POSITIONS, UNNAMED, LabelledImage
from lookact.models.vla.encoders import initialise
from lookact.models.vla.policy import POOLED, VLA
from lookact.ops.masked import Metrics
from lookact.seeding import numpy_rng, torch_rng

SCALE = 0.1
"""Metres that count as one."""
FINE = 0.1
"""Below this error, in the same unit, the loss is quadratic: a centimetre matters as much near as far."""
BRIGHTNESS, TINT = 0.25, 0.1
"""Colour jitter: how far a picture's brightness, and each of its colours, may be scaled."""
ADDED = 0.1
"""Probability of unknown words before a word, under word dropout."""
NAMING = 0.1
"""Weight of naming: the loss of positions and keypoints goes from 0.5 to 0.15."""
Keypoints = Mapping[str, Tensor]
"""Camera to (n, k, 2): where in its frame each of k things is, in -1..1; NaN where it is not in it."""


def pretrain_keypoints(
    vla: VLA,
    draw_images: Callable[[], Sequence[LabelledImage]],
    count: int,
    folder: Path,
    config: Mapping[str, Any],
    *,
    epochs: int,
    batch_size: int,
    lr: float,
    seed: int,
    save_every: int,
    names: Sequence[str] = (),
    word_dropout: float = 0.0,
) -> None:
    """Trains both encoders and the pooled feature on `count` images, drawn only where steps are left to do.

    `names` are the words that `word_dropout` leaves alone.
    """
    head, naming = make_head(vla, POSITIONS, seed), make_naming(vla, seed)

    def prepare() -> LossFn:
        images = draw_images()
        states = torch.from_numpy(np.stack([image.state for image in images]))
        positions = torch.from_numpy(np.stack([image.positions for image in images]))
        cameras = vla.spec.cameras
        frames = {name: torch.from_numpy(np.stack([image.images[name] for image in images])) for name in cameras}
        keypoints = {name: torch.from_numpy(np.stack([image.keypoints[name] for image in images])) for name in cameras}
        vla.set_statistics(states.mean(dim=0), states.std(dim=0))
        text_ids = vla.tokenize([image.instruction for image in images])
        words: dict[str, Any] = {"names": names, "word_dropout": word_dropout, "naming": naming}
        words["named"] = torch.from_numpy(np.stack([image.named for image in images]))
        return keypoint_loss(vla, head, frames, text_ids, states, positions, keypoints, seed=seed, **words)

    supervised_phase(
        folder,
        config,
        {
            "vision_encoder": vla.vision_encoder,
            "text_encoder": vla.text_encoder,
            "pooled": vla.pooled,
            "head": head,
            "naming": naming,
        },
        prepare,
        [batch for epoch in range(epochs) for batch in shuffled(count, batch_size, seed, epoch)],
        lr=lr,
        label="vision pretraining",
        save_every=save_every,
    )


def make_head(vla: VLA, outputs: int, seed: int) -> nn.Linear:
    """From the pooled feature (b, g) to positions (b, outputs)."""
    head = nn.Linear(POOLED, outputs)
    initialise(head, torch_rng(seed, "facts"))
    return head.to(vla.device)


def make_naming(vla: VLA, seed: int) -> nn.Linear:
    """From an encoded instruction (b, e) to scores of all that it may name (b, sum(NAMED))."""
    naming = nn.Linear(vla.text_encoder.width, sum(NAMED))
    initialise(naming, torch_rng(seed, "naming"))
    return naming.to(vla.device)


def naming_loss(scores: Tensor, named: Tensor) -> Tensor:
    """Mean cross-entropy of scores (b, sum(NAMED)) on what is named (b, 2); what is not counts nothing."""
    losses = [
        functional.cross_entropy(part, truth, ignore_index=UNNAMED)
        for part, truth in zip(torch.split(scores, list(NAMED), dim=1), named.unbind(dim=1))
        if (truth != UNNAMED).any()
    ]
    return torch.stack(losses).mean()


def predict(
    vla: VLA, head: nn.Module, images: Mapping[str, Tensor], text_ids: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Predicted positions (b, f) in metres, and each camera's soft-argmax points (b, cameras, queries, 2)."""
    frames = {camera: frames.to(vla.device) for camera, frames in images.items()}
    tokens, pooled = vla.encode(frames, vla.text_encoder(text_ids.to(vla.device)), state.to(vla.device))
    predicted: Tensor = SCALE * head(pooled)
    points = tokens[..., -2:]
    return predicted, points.view(len(points), len(vla.spec.cameras), -1, 2)


def jitter_colours(frames: Tensor, generator: torch.Generator) -> Tensor:
    """Frames (b, h, w, 3) uint8, each with its brightness and its three colours scaled at random."""
    shape = len(frames), 1, 1
    scale = 1 + BRIGHTNESS * (2 * torch.rand(*shape, 1, generator=generator) - 1)
    scale = scale * (1 + TINT * (2 * torch.rand(*shape, 3, generator=generator) - 1))
    return (frames * scale).clamp_(0, 255).to(torch.uint8)


def drop_words(
    text_ids: Tensor, kept: set[int], *, unknown: int, pad: int, rate: float, rng: np.random.Generator
) -> Tensor:
    """Word dropout: ids (b, n) in which words that name nothing are unknown or missing, and unknown ones are added.

    A row hides each word with a probability of its own, between 0 and twice the `rate`, and leaves it out with half of
    that; one or two unknown words are added before a tenth of its words. `kept` ids stay, and names of several words
    together; a row that grows too long is cut.
    """
    dropped = torch.full_like(text_ids, pad)
    for row, ids in enumerate(text_ids.tolist()):
        own, words = 2 * rate * rng.random(), list[int]()
        for place, word in enumerate(number for number in ids if number != pad):
            # never inside a name, nor before the first token, which marks the beginning
            if place and not (place > 1 and words[-1] in kept) and rng.random() < ADDED:
                words += [unknown] * int(rng.integers(1, 3))
            chance = rng.random()
            if word in kept or chance >= 1.5 * own:
                words.append(word)
            elif chance < own:
                words.append(unknown)
        words = words[: len(ids) - 1] + words[-1:] if len(words) > len(ids) else words
        dropped[row, : len(words)] = torch.tensor(words)
    return dropped


def keypoint_loss(
    vla: VLA,
    head: nn.Module,
    images: Mapping[str, Tensor],
    text_ids: Tensor,
    states: Tensor,
    positions: Tensor,
    keypoints: Keypoints,
    *,
    seed: int,
    names: Sequence[str] = (),
    word_dropout: float = 0.0,
    naming: nn.Module | None = None,
    named: Tensor | None = None,
) -> LossFn:
    """Over chosen images: smooth L1 of the positions (n, f), and the distance of the first queries to the keypoints.

    Pictures have their colours jittered, and instructions lose words other than `names`; `naming` learns to tell from
    them what they name (n, 2).
    """
    tokenizer = vla.text_encoder.tokenizer
    kept = {int(number) for name in names for number in tokenizer(name)["input_ids"]} | set(tokenizer.all_special_ids)
    words: dict[str, Any] = {"unknown": tokenizer.unk_token_id, "pad": tokenizer.pad_token_id, "rate": word_dropout}

    def loss(numbers: Sequence[int], step: int) -> tuple[Tensor, Metrics]:
        rows, generator = torch.tensor(numbers), torch_rng(seed, "jitter", step)
        shown = {name: jitter_colours(frames[rows], generator) for name, frames in images.items()}
        told = text_ids[rows]
        if word_dropout:
            told = drop_words(told, kept, rng=numpy_rng(seed, "words", step), **words)
        predicted, points = predict(vla, head, shown, told, states[rows])
        true = positions[rows].to(predicted)
        error = functional.smooth_l1_loss(predicted / SCALE, true / SCALE, beta=FINE)
        distance = keypoint_error(points, torch.stack([keypoints[name][rows] for name in vla.spec.cameras], dim=1))
        told_apart = error.new_zeros(())
        if naming is not None and named is not None:
            told_apart = naming_loss(naming(vla.text_encoder(told.to(vla.device))), named[rows].to(vla.device))
        return error + distance + NAMING * told_apart, {
            "pretraining/naming": told_apart.detach(),
            "pretraining/error_cm": 100 * (predicted - true).abs().mean().detach(),
            "pretraining/keypoint_error": distance.detach(),
        }

    return loss


def keypoint_error(points: Tensor, keypoints: Tensor) -> Tensor:
    """Mean distance along an axis from each camera's first points (b, c, queries, 2) to the keypoints (b, c, k, 2)."""
    keypoints = keypoints[:, :, : points.shape[2]].to(points)
    visible = ~keypoints.isnan()
    gaps = (points[:, :, : keypoints.shape[2]] - keypoints.nan_to_num()).abs()
    return gaps[visible].sum() / visible.sum().clamp_min(1)
