"""Randomness by name, never by call order.

`derive(seed, "pose", step, group)` gives the same number in every process, on every machine, however
many other draws were made in between. Each consumer asks for its own stream.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive(seed: int, *path: int | str) -> int:
    """A 63-bit seed for the place named by `path` under `seed`."""
    # the type is part of the name, so that derive(0, 1) and derive(0, "1") differ
    name = "/".join(f"{type(part).__name__}:{part}" for part in (int(seed), *path))
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def numpy_rng(seed: int, *path: int | str) -> np.random.Generator:
    """A numpy generator of its own for the place named by `path`."""
    return np.random.default_rng(derive(seed, *path))


def torch_rng(seed: int, *path: int | str, device: str = "cpu") -> torch.Generator:
    """A torch generator of its own for the place named by `path`."""
    import torch

    return torch.Generator(device=device).manual_seed(derive(seed, *path))
