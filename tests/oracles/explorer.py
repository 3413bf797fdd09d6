"""Explores every interleaving of a small program, state by state.

    state --one step of one rank, or one completion--> state --> ... --> a state without steps

There is no event graph here and no fixpoint: a machine knows only which steps a state allows, and all of them are
tried. That a program ends in the same place whatever the order (confluence) is checked, never assumed. This is the
oracle for the static verdict, so it shares no code with it.
"""

from __future__ import annotations

import random
from typing import TypeAlias

from pipesched.model.schedule import Program
from tests.oracles.explorer_machines import Machine, machine
from tests.oracles.explorer_script import Script, Stops

MODELS = ("strict", "buffered(1)", "buffered(2)", "buffered(inf)", "one-stream", "pair-stream", "async")
Readable: TypeAlias = Program | Script


def explore(machine: Machine) -> set[Stops]:
    """Return the ends of the maximal runs: every reachable state is visited."""
    seen = {machine.start()}
    new, ends = list(seen), set()
    while new:
        state = new.pop()
        steps = machine.steps(state)
        if not steps:
            ends.add(machine.script.stops(machine.at(state)))
        for step in steps:
            if step not in seen:
                seen.add(step)
                new.append(step)
    return ends


def walk(machine: Machine, rng: random.Random) -> Stops:
    """Return the end of one random maximal run, for programs too large to explore."""
    state = machine.start()
    while steps := machine.steps(state):
        state = rng.choice(steps)
    return machine.script.stops(machine.at(state))


def read(program: Readable) -> Script:
    return program if isinstance(program, Script) else Script(program)


def stops(program: Readable, model: str) -> Stops:
    """Return by rank the instruction (from 0) that never completes; the list's length if only its SENDs are missing at
    the end; -1 if it finishes. Raises if interleavings differ.
    """
    script = read(program)
    if model not in script.known:
        ends = explore(machine(script, model))
        assert len(ends) == 1, f"not confluent under {model}: {sorted(ends)}"
        script.known[model] = ends.pop()
    return script.known[model]


def holds(program: Readable, model: str) -> bool:
    return set(stops(program, model)) <= {-1}


def least_capacity(program: Readable) -> int | None:
    """Return 0 if strict holds, else the least k >= 1 for which buffered(k) does; None if not even buffered(inf)."""
    script = read(program)
    if holds(script, "strict"):
        return 0
    messages = sum(script.sends(end) for end in script.channel)
    for k in range(1, messages + 1):
        if holds(script, f"buffered({k})"):
            return k
    assert not holds(script, "buffered(inf)"), "as many slots as messages are as good as any number"
    return None
