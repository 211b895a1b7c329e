"""One tiny checkpoint for all tests of the models, and conversations to score with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from lookact.batch import TokenInputs
from lookact.models.vlm.loading import load_chat
from lookact.models.vlm.policy import ChatVLM
from lookact.models.vlm.tiny import TinySpec, make_tiny

Conversations = Callable[..., TokenInputs]


def action(angle: int, metres: float) -> str:
    return json.dumps({"rotation_angle_degrees": angle, "forward_meters": metres})


@pytest.fixture(scope="session")
def corpus() -> list[str]:
    actions = [action(angle, step / 4) for angle in range(-90, 91, 15) for step in range(5)]
    return actions + ["Walk to the red chair.", "Where is the sofa?"] * 8


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory, corpus: list[str]) -> Path:
    return make_tiny(tmp_path_factory.mktemp("tiny"), corpus=corpus, spec=TinySpec(vocabulary=400))


@pytest.fixture
def chat(tiny_folder: Path) -> ChatVLM:
    return load_chat(tiny_folder)


@pytest.fixture
def conversations() -> Conversations:
    """Rows of `turns` turns each: an image, a text, and an action whose tokens are the units."""

    def build(chat: ChatVLM, turns: Sequence[int], sizes: Sequence[tuple[int, int]] = ((96, 96),)) -> TokenInputs:
        rows = [conversation(chat, count, sizes, seed) for seed, count in enumerate(turns)]
        width, units = max(len(row[0]) for row in rows), max(len(row[1]) for row in rows)
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        attend = torch.zeros(len(rows), width, dtype=torch.bool)
        positions = torch.zeros(len(rows), units, dtype=torch.long)
        for index, (row_ids, row_positions, _, _) in enumerate(rows):
            ids[index, : len(row_ids)] = torch.tensor(row_ids)
            attend[index, : len(row_ids)] = True
            positions[index, : len(row_positions)] = torch.tensor(row_positions)
        return TokenInputs(ids, attend, positions, tuple(row[2] for row in rows), tuple(row[3] for row in rows))

    return build


def conversation(
    chat: ChatVLM, turns: int, sizes: Sequence[tuple[int, int]], seed: int
) -> tuple[list[int], list[int], torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(seed)
    shapes = [sizes[turn % len(sizes)] for turn in range(turns)]
    pixels, grids = chat.encode_images([random.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in shapes])
    ids: list[int] = []
    positions: list[int] = []
    for count in chat.image_token_counts(grids):
        image = "<|vision_start|>" + "<|image_pad|>" * count + "<|vision_end|>"
        ids += chat.encode_text(f"<|im_start|>user\n{image}Where is the sofa?<|im_end|>\n<|im_start|>assistant\n")
        reply = chat.encode_text(action(int(random.integers(-6, 7)) * 15, int(random.integers(5)) / 4) + "<|im_end|>")
        positions += range(len(ids), len(ids) + len(reply))
        ids += [*reply, *chat.encode_text("\n")]
    return ids, positions, pixels, grids
