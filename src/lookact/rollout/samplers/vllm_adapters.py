"""Adapters in vLLM as the learner has them: their part is added before the product of a linear is rounded.

vLLM adds it to an output that is rounded already, in which a small change is lost (`models/vlm/adapters.py`). Its
workers import this module, by the name of its class, before they build the model; nobody else does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from lookact.models.vlm.adapters import HALF
from lookact.rollout.samplers.vllm_worker import WeightReader

# one class for engines with and without adapters in one process: vLLM's worker takes on an extension for good
AdapterReader = WeightReader


def round_once() -> None:
    """Changes vLLM's adapted linears, once and for all in this process."""
    from vllm.lora.layers.base_linear import BaseLinearLayerWithLoRA
    from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod

    as_it_is = BaseLinearLayerWithLoRA._apply_sync

    def apply(layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
        base, factors = layer.base_layer, list(zip(layer.lora_a_stacked, layer.lora_b_stacked))
        plain = type(base.quant_method) is UnquantizedLinearMethod and base.weight.dim() == 2
        if x.dim() != 2 or x.dtype not in HALF or x.dtype != factors[0][0].dtype or not plain:
            stock: Tensor = as_it_is(layer, x, bias)
            return stock
        # one adapter for all tokens, in the first slot: plain products, with no table of who has which
        part = torch.cat([linear(linear(x, a[0, 0]), b[0, 0]) for a, b in factors], dim=-1)
        both = torch.addmm(part, x, base.weight.T)
        return both if bias is None else both + bias

    BaseLinearLayerWithLoRA._apply_sync = apply
    # on a CPU weights would be packed away, out of this product's reach
    LinearBase._cpu_skip_gemm_dispatch = True


# a worker extension is imported, and nothing of it is called, before the model is there
round_once()
