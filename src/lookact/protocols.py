"""Every seam of LookAct on one page. Anything with these methods fits; nothing inherits from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lookact.types import (
    Demonstration,
    Episode,
    EpisodeSpec,
    Image,
    Observation,
    Preference,
    TokenPrompt,
    TokenReply,
)

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch import Tensor

    from lookact.batch import ActorCriticOutput, ActorOutput, ControlInputs
    from lookact.types import Decision, PlanEpisode, VectorObservation, VectorStep


class Env(Protocol):
    """Environment of `rollout.collect`: Gymnasium's methods with `Observation`s; `envs/wrappers` makes one of any."""

    def reset(self, *, seed: int, options: Mapping[str, Any]) -> tuple[Observation, Mapping[str, Any]]: ...
    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Mapping[str, Any]]: ...
    def close(self) -> None: ...


class Actor(Protocol):
    """Batched policy in a rollout: samplers of replies, random baselines. A row is one environment or conversation."""

    version: int
    """Policy version of its weights; stamped on every episode."""

    def begin(self, row: int, seed: int) -> None:
        """A new episode on this row, with a random stream of its own."""

    def act(self, rows: Sequence[int], observations: Sequence[Observation]) -> list[Decision]:
        """One decision a row; rows not named cost nothing."""
        ...

    def end(self, row: int) -> None:
        """Drop the row's state."""


@runtime_checkable
class ContinuousActor(Actor, Protocol):
    """An actor over an engine that answers each row when it can: no row waits for another's reply."""

    def send(self, row: int, observation: Observation) -> None:
        """Ask for the row's decision without waiting for it."""

    def receive(self, timeout_s: float | None) -> list[tuple[int, Decision]]:
        """Decisions that are there, by row; may wait up to `timeout_s` for the first, and may come back with none."""
        ...


class Task(Protocol):
    """What is to be learned: environments, starts, demonstrations, and how success is measured. It pickles."""

    @property
    def outcome(self) -> Mapping[str, str]:
        """Names of the task's own numbers to their keys in the last turn's info."""
        ...

    @property
    def best(self) -> str:
        """The number of `report` that picks the best checkpoint."""
        ...

    @property
    def image_size(self) -> int: ...
    def make_env(self) -> Env: ...
    def specs(self, seed: int, split: str, *, groups: int, group_size: int = 1, step: int = 0) -> Sequence[EpisodeSpec]:
        """`group_size` episodes from each of `groups` starts; splits of other names share no start."""
        ...

    def demonstrations(self, specs: Sequence[EpisodeSpec], *, noise: float) -> Iterator[Demonstration]:
        """The expert's episodes, one a spec; with probability `noise` a random action replaces the expert's."""
        ...

    def corpus(self) -> Sequence[str]:
        """Texts of the task, from which a tiny model's tokenizer is made."""
        ...

    def pretraining_images(self, seed: int, *, rooms: Iterable[int], per_room: int) -> Iterator[Any]:
        """Labelled images for vision pretraining."""
        ...

    def report(self, episodes: Sequence[Episode]) -> dict[str, Any]:
        """An evaluation as JSON, over the episodes of all processes, with intervals under `ci`."""
        ...

    def report_metrics(self, report: Mapping[str, Any]) -> dict[str, float]:
        """The numbers of a report that are logged while training."""
        ...

    def compare(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
        """The reports before and after RL, side by side."""
        ...

    def histograms(self, episodes: Sequence[Episode]) -> dict[str, NDArray[np.float64]]:
        """Distributions that are logged while training."""
        ...

    def random_actor(self) -> Actor:
        """Actions drawn uniformly: the baseline."""
        ...

    def add_floor_map(self, specs: Sequence[EpisodeSpec]) -> Callable[[Episode], Episode]:
        """Gives an episode of one of the specs the map of its room, for whoever looks at it later."""
        ...


class TokenEngine(Protocol):
    """Inference engine apart from the learner; keeps no conversation, so that a reply can always be asked for again."""

    def submit(self, prompt: TokenPrompt, params: Mapping[str, Any]) -> int:
        """Ask for a reply without waiting for it; returns the number by which it comes back."""
        ...

    def poll(self, timeout_s: float | None) -> list[tuple[int, TokenReply]]:
        """Replies that are there, by number; may wait up to `timeout_s` for the first, and may come back with none."""
        ...

    def load(self, state: Mapping[str, Tensor], version: int) -> dict[str, float]:
        """Takes over weights by their Hugging Face names, drops its caches, and returns each one's norm as read."""
        ...

    def sleep(self) -> None:
        """Leave the memory to the learner until `wake`, where the engine's settings say so."""
        ...

    def wake(self) -> None: ...
    def close(self) -> None: ...


class ControlPolicy(Protocol):
    """Actor-critic over action vectors, optionally with memory (`carry`)."""

    @property
    def spec(self) -> Any:
        """With `cameras`, `history`, `action_size` and `sample_size`, the numbers drawn for an action."""

    @property
    def device(self) -> torch.device: ...

    @property
    def frozen_vision(self) -> bool:
        """Whether `features` of a frame never change."""
        ...

    def features(self, images: dict[str, Tensor], text_ids: Tensor) -> dict[str, Tensor]: ...
    def tokenize(self, texts: Sequence[str]) -> Tensor: ...
    def start_carry(self, rows: int) -> Tensor | None: ...
    def actor(self, inputs: ControlInputs) -> ActorOutput: ...
    def sample(self, inputs: ControlInputs, noise: Tensor) -> tuple[Tensor, ActorOutput]:
        """What is drawn from noise (b, sample_size), and the output that scores it."""

    def executed(self, actions: Tensor) -> Tensor:
        """The action (b, a) of what was drawn."""

    def normalise_actions(self, actions: Tensor) -> Tensor:
        """Actions (b, a) as done, in the policy's own units: its history's."""

    def value(self, critic_features: Tensor) -> Tensor: ...
    def __call__(self, inputs: ControlInputs) -> ActorCriticOutput:
        """Both at once."""


class EnvPart(Protocol):
    """Part of a vector environment, stepped asynchronously, with autoreset in the step that ends an episode."""

    @property
    def num_envs(self) -> int: ...
    def reset(
        self, plan_episode: PlanEpisode | None = None
    ) -> tuple[VectorObservation, tuple[dict[str, Any], ...]]: ...
    def send(self, actions: NDArray[np.float32]) -> None: ...
    def receive(self) -> VectorStep: ...


class VectorEnvLike(Protocol):
    """Vector environment in parts that may step at the same time (double-buffered)."""

    @property
    def num_envs(self) -> int: ...
    @property
    def restarts(self) -> int: ...
    @property
    def action_space(self) -> Any: ...
    @property
    def parts(self) -> Sequence[EnvPart]: ...


class Judge(Protocol):
    """Preference labels: compares pairs of frames against a goal in words."""

    def compare(self, pairs: Sequence[tuple[Image, Image]], goal: str) -> list[Preference]: ...


class Tracker(Protocol):
    """Experiment tracker: metrics, images, text, histograms."""

    def log(self, metrics: Mapping[str, float], step: int) -> None: ...
    def image(self, name: str, image: Image, step: int) -> None: ...
    def text(self, name: str, text: str, step: int) -> None: ...
    def histogram(self, name: str, values: NDArray[np.floating[Any]], step: int) -> None: ...
    def close(self) -> None: ...


class Stateful(Protocol):
    """Anything a checkpoint must keep so that a resumed run continues bit for bit."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class RecipeSettings(Protocol):
    """A recipe's `config.py`; imports no torch."""

    Config: type
    """A frozen dataclass with `seed: int`."""
    PRESETS: Mapping[str, Any]
    """Name to Config; debug takes seconds, small learns on a small machine, full is the real thing."""


class Recipe(Protocol):
    """A recipe's `train.py`."""

    def main(self, cfg: Any, run: Any) -> dict[str, Any]:
        """Train, and return the numbers of its last line."""

    def evaluate(
        self, cfg: Any, *, checkpoint: Path | None, episodes: int, greedy: bool, dummy: bool, folder: Path
    ) -> dict[str, Any]:
        """Measure a checkpoint, or a random policy where `dummy`; pictures and episodes go to `folder`."""

    def collect(self, cfg: Any, *, checkpoint: Path | None, episodes: int, out: Path) -> dict[str, Any]:
        """Run episodes and keep them in `out`; what is there already is kept and counts."""
