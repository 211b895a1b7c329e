"""Whether an engine samples with the very probabilities that the learner scores with."""

from __future__ import annotations

from lookact.errors import TokenMismatch


def check_mismatch(gap: float, limit: float) -> None:
    """Raises where log-probs as sampled and as scored differ by more nats than rounding explains."""
    if not gap <= limit:
        raise TokenMismatch(
            f"engine and learner disagree by {gap:.4f} nats: tokenizer, template or weights differ; "
            "learn.parity is the limit"
        )
