"""Adapters in vLLM as the learner has them: their part is added before the product of a linear is rounded.

vLLM adds it to an output that is rounded already, in which a small change is lost (`models/vlm/adapters.py`). Its
workers import this module, by the name of its class, before they build the model; nobody else does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lookact.rollout.samplers.vllm_worker import WeightReader


class AdapterReader(WeightReader):
    """`WeightReader` of an engine with adapters."""


def round_once() -> None:
    """Changes vLLM's adapted linears, once and for all in this process."""
    from vllm.lora.layers.base_linear import BaseLinearLayerWithLoRA
    from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod

    as_it_is = BaseLinearLayerWithLoRA._apply_sync

    def apply(layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
        base = layer.base_layer
        plain = type(base.quant_method) is UnquantizedLinearMethod and base.weight.dim() == 2
        if x.dim() != 2 or x.dtype == torch.float32 or not plain:
            stock: Tensor = as_it_is(layer, x, bias)
            return stock
        part = layer._apply_lora_to_output(x, x.new_zeros(len(x), base.weight.shape[0]))
        both = torch.addmm(part, x, base.weight.T)
        return both if bias is None else both + bias

    BaseLinearLayerWithLoRA._apply_sync = apply
    # on a CPU weights would be packed away, out of this product's reach
    LinearBase._cpu_skip_gemm_dispatch = True


# a worker extension is imported, and nothing of it is called, before the model is there
round_once()
