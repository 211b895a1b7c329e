"""Shortest plans by breadth-first search over states that a function leads on from."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

State = TypeVar("State", bound=Hashable)


def shortest_plan(
    start: State, follow: Callable[[State], Iterable[tuple[str, State]]], done: Callable[[State], bool]
) -> list[str] | None:
    """The fewest actions from `start` to a state that is `done`, or None; of equally short plans the first found."""
    came: dict[State, tuple[str, State] | None] = {start: None}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        if done(state):
            plan: list[str] = []
            while (step := came[state]) is not None:
                plan.append(step[0])
                state = step[1]
            return plan[::-1]
        for action, after in follow(state):
            if after not in came:
                came[after] = (action, state)
                waiting.append(after)
    return None
