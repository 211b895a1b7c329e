"""Numbers for Prometheus, in its text format."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
LABELS = (*((bucket, f'le="{bucket}"') for bucket in BUCKETS), (float("inf"), 'le="+Inf"'))
Help = Mapping[str, tuple[str, str]]
"""Name to kind and meaning."""
SHARED: Help = {
    "requests_total": ("counter", "requests answered, by path and status"),
    "dropped_total": ("counter", "requests whose client left or waited too long"),
    "held_bytes": ("gauge", "bytes held for requests under way"),
    "request_seconds": ("histogram", "seconds from a request's arrival to its answer"),
}


class Metrics:
    """Counts from the event loop and from threads: what every server counts, and this one's `own`."""

    def __init__(self, own: Help) -> None:
        self.help = {**SHARED, **own}
        self._lock = threading.Lock()
        self._values: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, amount: float = 1, labels: str = "") -> None:
        with self._lock:
            self._values[name, labels] += amount  # type: ignore[assignment]

    def request(self, path: str, status: int, seconds: float) -> None:
        """One request answered; `path` must be one of a few, since each makes a series of its own."""
        with self._lock:
            self._values["requests_total", f'path="{path}",status="{status}"'] += 1
            for bucket, label in LABELS:
                self._values["request_seconds_bucket", label] += seconds <= bucket
            self._values["request_seconds_sum", ""] += seconds  # type: ignore[assignment]
            self._values["request_seconds_count", ""] += 1

    def render(self, **gauges: float) -> str:
        """The page that Prometheus reads."""
        with self._lock:
            values = dict(self._values) | {(name, ""): value for name, value in gauges.items()}
        lines = []
        for name, (kind, text) in self.help.items():
            lines += [f"# HELP lookact_{name} {text}", f"# TYPE lookact_{name} {kind}"]
            for (key, labels), value in values.items():
                if key == name or (kind == "histogram" and key.startswith(f"{name}_")):
                    lines.append(f"lookact_{key}{{{labels}}} {value:g}" if labels else f"lookact_{key} {value:g}")
        return "\n".join(lines) + "\n"
