"""The bodies that the environment server takes and gives. What `codec` encodes is `Any` here."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Strict
from pydantic.dataclasses import dataclass

from lookact.envs.remote.client import MAX_PER_CALL

MAX_SPECS = 16_384
MAX_IMAGES = 64
Seed = Annotated[int, Strict(), Field(ge=0, lt=2**64)]
Count = Annotated[int, Strict(), Field(ge=1, le=MAX_SPECS)]
Few = Annotated[int, Strict(), Field(ge=1, le=MAX_IMAGES)]
SessionId = Annotated[str, Field(min_length=1, max_length=64)]
Encoded = dict[str, Any]


@dataclass(frozen=True)
class OpenRequest:
    task_seed: Seed = 0
    """Tasks may draw their questions by a seed."""


@dataclass(frozen=True)
class ResetRequest:
    session: SessionId
    seed: Seed
    options: Encoded = Field(default_factory=dict)


@dataclass(frozen=True)
class StepRequest:
    session: SessionId
    turn: Annotated[int, Strict(), Field(ge=1, lt=2**31)]
    """1 for the first step of an episode. The turn that was answered last may be asked for again."""
    action: Any


@dataclass(frozen=True)
class CloseRequest:
    session: SessionId


@dataclass(frozen=True)
class Spec:
    id: Annotated[str, Field(max_length=200)]
    group: Annotated[int, Strict()]
    seed: Seed
    options: Encoded = Field(default_factory=dict)


Specs = Annotated[list[Spec], Field(min_length=1, max_length=MAX_PER_CALL)]
Episodes = Annotated[list[Encoded], Field(max_length=MAX_SPECS)]


@dataclass(frozen=True)
class SpecsCall:
    method: Literal["specs"]
    seed: Seed
    split: Annotated[str, Field(max_length=100)]
    groups: Count
    group_size: Count = 1
    step: Annotated[int, Strict(), Field(ge=0, lt=2**31)] = 0
    task_seed: Seed = 0


@dataclass(frozen=True)
class DemonstrationsCall:
    method: Literal["demonstrations"]
    specs: Specs
    noise: Annotated[float, Strict(), Field(ge=0, le=1)] = 0.0
    task_seed: Seed = 0


@dataclass(frozen=True)
class CorpusCall:
    method: Literal["corpus"]
    task_seed: Seed = 0


@dataclass(frozen=True)
class ImagesCall:
    method: Literal["pretraining_images"]
    seed: Seed
    rooms: Annotated[list[Seed], Field(min_length=1, max_length=MAX_PER_CALL)]
    per_room: Few
    task_seed: Seed = 0


@dataclass(frozen=True)
class EpisodesCall:
    """Episodes as `codec` encodes them, without observations and token ids."""

    method: Literal["report", "histograms"]
    episodes: Episodes
    task_seed: Seed = 0


@dataclass(frozen=True)
class MetricsCall:
    method: Literal["report_metrics"]
    report: Encoded
    task_seed: Seed = 0


@dataclass(frozen=True)
class CompareCall:
    method: Literal["compare"]
    before: Encoded
    after: Encoded
    task_seed: Seed = 0


@dataclass(frozen=True)
class MapCall:
    method: Literal["floor_map"]
    spec: Spec
    task_seed: Seed = 0


@dataclass(frozen=True)
class ActionsCall:
    """Actions of the random baseline, from the first on."""

    method: Literal["random_actions"]
    seed: Seed
    count: Annotated[int, Strict(), Field(ge=1, le=1024)]
    task_seed: Seed = 0


Call = Annotated[
    SpecsCall
    | DemonstrationsCall
    | CorpusCall
    | ImagesCall
    | EpisodesCall
    | MetricsCall
    | CompareCall
    | MapCall
    | ActionsCall,
    Field(discriminator="method"),
]


@dataclass(frozen=True)
class Opened:
    session: str


@dataclass(frozen=True)
class Closed:
    closed: bool
    """Whether there was such a session."""


@dataclass(frozen=True)
class Started:
    """The answer to a reset."""

    observation: Encoded
    info: Encoded


@dataclass(frozen=True)
class Stepped:
    observation: Encoded
    reward: float | Encoded
    terminated: bool
    truncated: bool
    info: Encoded


@dataclass(frozen=True)
class Returned:
    value: Any


@dataclass(frozen=True)
class TaskFacts:
    """What a client must know before it begins."""

    protocol: int
    task: str
    image_size: int
    outcome: dict[str, str]
    best: str
    presets: dict[str, dict[str, str]]
    """Settings of a recipe that this task wants, by preset."""


@dataclass(frozen=True)
class Health:
    status: Literal["ok"]
    sessions: int
