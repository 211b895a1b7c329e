"""Families of vision-language models: one table, and a slower way for those that are not in it."""

from __future__ import annotations

from lookact.models.vlm.families.family import Family
from lookact.models.vlm.families.other import OTHER
from lookact.models.vlm.families.qwen import QWEN3_VL, QWEN3_VL_MOE, QWEN25_VL
from lookact.models.vlm.families.tiles import GEMMA3, INTERNVL, SMOLVLM

__all__ = ["FAMILIES", "OTHER", "Family", "family_of"]
FAMILIES = {family.name: family for family in (QWEN3_VL, QWEN3_VL_MOE, QWEN25_VL, SMOLVLM, INTERNVL, GEMMA3)}


def family_of(model_type: str) -> Family:
    """The family of a checkpoint by its `model_type`; OTHER if nobody knows it."""
    return next((family for family in FAMILIES.values() if model_type in family.types), OTHER)
