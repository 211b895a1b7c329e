"""Settings of a task on environment servers: `--task http://HOST:PORT`, several with commas. Loads no torch."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any, ClassVar

from lookact.config import setting
from lookact.envs.remote.client import ServerSpec, servers_of


@dataclass(frozen=True)
class RemoteConfig:
    """How patient a run is with its environment servers; a subclass names them and what they said of their task."""

    timeout_s: float = setting(60.0, help="seconds for one answer of the environment server", above=0)
    retry_s: float = setting(
        60.0, help="seconds to wait for a server that is away or full; then episodes fail", least=0
    )
    replacements: int = setting(
        3, help="lost sessions of one episode that are replaced by running it again from its spec", least=0
    )

    urls: ClassVar[tuple[str, ...]] = ()
    facts: ClassVar[dict[str, Any]] = {}
    image_size: ClassVar[int] = 0
    presets: ClassVar[dict[str, dict[str, str]]] = {}
    factory: ClassVar[str] = "lookact.tasks.remote:make_remote"

    @property
    def servers(self) -> ServerSpec:
        return ServerSpec(self.urls, self.timeout_s, self.retry_s, self.replacements)


@functools.cache
def remote_settings(names: str) -> type:
    """The settings class for the servers at these addresses, which are asked for their task."""
    urls = tuple(name.strip().rstrip("/") for name in names.split(","))
    facts = servers_of(ServerSpec(urls)).facts()
    told = {"urls": urls, "facts": facts, "image_size": facts["image_size"], "presets": facts["presets"]}
    return dataclasses.dataclass(frozen=True)(type("RemoteConfig", (RemoteConfig,), told))
