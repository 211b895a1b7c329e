"""`python -m lookact.rollout.vllm_serve`: vLLM's own server, in an environment whose torchvision may need mending."""

from __future__ import annotations

import runpy

from lookact.rollout.vllm_settings import mend_torchvision

# at the top: processes that the server spawns import this module again, and nothing of it but this line
mend_torchvision()

if __name__ == "__main__":
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
