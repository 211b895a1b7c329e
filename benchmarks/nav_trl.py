"""TRL's GRPOTrainer with its multi-turn `environment_factory`, on the walks that LookAct's step is measured on.

TRL continues an episode as long as a reply holds a tool call. Replies here are free text, as in the navigation
recipe, so the tokenizer is told to read every reply as a call of the environment's only tool with that text.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from transformers import ProcessorMixin, Qwen3VLProcessor, TrainerCallback

from benchmarks.timing import CPU, WALL, Facts, Work
from benchmarks.walks import Load, Walk, make_walks, open_checkpoint
from lookact.models.vlm.policy import ChatVLM
from lookact.types import Observation

TOOL = "step"
TEMPLATE = """\
{%- for message in messages -%}
    {{- '<|im_start|>' + ('user' if message.role == 'tool' else message.role) + '\\n' -}}
    {%- for part in message.content -%}
        {%- if part.type == 'image' -%}
            {{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
        {%- else -%}
            {{- part.text -}}
        {%- endif -%}
    {%- endfor -%}
    {%- for call in message.tool_calls or [] -%}
        {{- call.function | tojson -}}
    {%- endfor -%}
    {{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""
"""Renders a tool's answer as the plain user turn that `text.chat` writes, so that both sides read the same prompts."""


class StillProcessor(Qwen3VLProcessor):  # type: ignore[misc]
    """Qwen3-VL's processor without the video part, which would need torchvision."""

    def __init__(self, image_processor: Any = None, tokenizer: Any = None, chat_template: str | None = None) -> None:
        self.image_token, self.video_token = "<|image_pad|>", "<|video_pad|>"
        self.image_token_id, self.video_token_id = map(
            tokenizer.convert_tokens_to_ids, (self.image_token, self.video_token)
        )
        ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=chat_template)


def make_processor(chat: ChatVLM) -> StillProcessor:
    """The checkpoint's own tokenizer and image processor, as TRL wants them."""
    tokenizer = chat.tokenizer
    tokenizer.response_template = {}

    def as_call(ids: Sequence[int], **_: object) -> dict[str, Any]:
        reply = tokenizer.decode(ids, skip_special_tokens=True)
        call = {"type": "function", "function": {"name": TOOL, "arguments": {"reply": reply}}}
        return {"role": "assistant", "content": "", "tool_calls": [call]}

    tokenizer.parse_response = as_call
    return StillProcessor(chat.image_processor, tokenizer, chat_template=TEMPLATE)


def shown(observation: Observation) -> list[dict[str, Any]]:
    """An observation as content blocks, pictures first."""
    pictures = [{"type": "image", "image": Image.fromarray(image)} for image in observation.images.values()]
    return [*pictures, {"type": "text", "text": observation.text}]


def make_environment(walks: Sequence[Walk]) -> type:
    """An environment class as TRL takes it: public methods are tools."""

    class Environment:
        made = 0

        def __init__(self) -> None:
            self.number = Environment.made
            Environment.made += 1

        def reset(self, *, walk: int, **_: object) -> list[dict[str, Any]]:
            self.turn, self.walk = 0, walks[walk]
            return shown(self.walk[0])

        def step(self, reply: str) -> list[dict[str, Any]]:
            """Move.

            Args:
                reply: what to do
            """
            self.turn += 1
            return shown(self.walk[self.turn])

        def get_reward(self) -> float:
            return float(self.number % 2)

    return Environment


def make_trainer(folder: Path, load: Load) -> Any:
    """A GRPOTrainer whose step is one rollout of all environments and one update on all of it."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    chat = open_checkpoint(folder)
    rows = [{"prompt": [{"role": "user", "content": ""}], "walk": group} for group in range(load.groups)]
    config = GRPOConfig(
        output_dir=str(folder / "trl"),
        # one micro-batch of everything
        per_device_train_batch_size=load.environments,
        gradient_accumulation_steps=1,
        num_generations=load.size,
        # TRL's name for the length of the whole episode after its first prompt
        max_completion_length=4096,
        max_tool_calling_iterations=load.turns - 1,
        # per reply; and no special token may be sampled, as in LookAct
        generation_kwargs={
            "max_new_tokens": load.reply_tokens,
            "suppress_tokens": chat.banned.nonzero().flatten().tolist(),
        },
        temperature=1.0,
        max_steps=1,
        learning_rate=1e-9,
        lr_scheduler_type="constant",
        max_grad_norm=1.0,
        beta=0.0,
        shuffle_dataset=False,
        # as LookAct does here
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        seed=load.seed,
    )
    return GRPOTrainer(
        model=chat.model,
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=make_processor(chat),
        environment_factory=make_environment(make_walks(load)),
    )


def trains(folder: Path, load: Load) -> Work:
    """TRL's own training loop, a step at a time."""
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    trainer = make_trainer(folder, load)
    watch = StepWatch()
    trainer.add_callback(watch)
    pictures = Stopwatch(trainer.processing_class.image_processor.preprocess)
    trainer.processing_class.image_processor.preprocess = pictures

    def work() -> Facts:
        pictures.seconds = 0.0
        trainer.train()
        tokens = trainer.state.log_history[-1]
        return watch.lap() | {
            "picture_seconds": pictures.seconds,
            "episodes": load.environments,
            "turns": load.environments * (1 + tokens["tools/call_frequency"]),
            "sampled_tokens": load.environments * tokens["completions/mean_length"],
        }

    return work


class Stopwatch:
    """A function that counts the CPU time it takes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.seconds = function, 0.0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        begun = time.process_time()
        result = self.function(*args, **kwargs)
        self.seconds += time.process_time() - begun
        return result


class StepWatch(TrainerCallback):  # type: ignore[misc]
    """Times the training step alone, without the set-up of the loop around it."""

    def on_step_begin(self, *_: object, **__: object) -> None:
        self.begun = time.process_time(), time.perf_counter()

    def on_step_end(self, *_: object, **__: object) -> None:
        self.ended = time.process_time(), time.perf_counter()

    def lap(self) -> dict[str, float]:
        return {CPU: self.ended[0] - self.begun[0], WALL: self.ended[1] - self.begun[1]}
