"""CLIP (arXiv:2103.00020) as a judge: of two images, the one whose embedding is nearer to that of the goal in words.

The baseline of RL-VLM-F (arXiv:2402.03681) that scores one image at a time; no server, no prompt, no reply. Loads
transformers as the first judge is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.judges.vlm_judge import COUNTS, Pair, by_score
from lookact.types import Image, Preference

AT_ONCE = 64
"""Images embedded together."""


class SimilarityJudge:
    """A `Judge` by cosine similarity; the words of a preference are the two similarities."""

    def __init__(self, source: str, *, device: str = "cpu") -> None:
        """`source` is the folder or the Hub's name of a CLIP checkpoint with its processor."""
        from transformers import CLIPModel, CLIPProcessor

        self.model = CLIPModel.from_pretrained(source, trust_remote_code=False).eval().to(device)
        self.processor = CLIPProcessor.from_pretrained(source, trust_remote_code=False)
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
        """As those of `VLMJudge`, without any request."""

    def compare(self, pairs: Sequence[Pair], goal: str) -> list[Preference]:
        """A verdict for every pair, in order."""
        scores = self.similarities([image for pair in pairs for image in pair], goal).reshape(-1, 2)
        found = []
        for (first, second), (one, two) in zip(pairs, scores.tolist()):
            identical = np.array_equal(first, second)
            verdict = -1 if identical else by_score(one, two)
            outcome = "identical" if identical else "no_preference" if verdict < 0 else ""
            self.counts.update(name for name in ("pairs", outcome) if name)
            found.append(Preference(first, second, verdict, f"{one:.5f} {two:.5f}"))
        return found

    def similarities(self, images: Sequence[Image], goal: str) -> NDArray[np.float64]:
        """Cosine similarity (n,) of each image to the goal, between -1 and 1."""
        import torch

        found = []
        for start in range(0, len(images), AT_ONCE):
            inputs: Any = self.processor(
                text=[goal], images=list(images[start : start + AT_ONCE]), return_tensors="pt", truncation=True
            )
            with torch.inference_mode():
                told = self.model(**inputs.to(self.model.device))
            found.append((told.image_embeds @ told.text_embeds.T)[:, 0].double().cpu().numpy())
        return np.concatenate(found) if found else np.zeros(0)

    def state_dict(self) -> dict[str, Any]:
        return dict(self.counts)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.counts = Counter(state)
