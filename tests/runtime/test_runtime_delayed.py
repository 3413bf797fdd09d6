"""With STEPs inside the order, every version of every weight equals the version that the formula of delayed training
gives.

python -m tests.runtime.test_runtime_delayed      with SGD, momentum and AdamW, in 3 and 5 processes
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pipesched
from tests.runtime import delayed
from tests.runtime.harness import Ranks, ranks_of
from tests.runtime.streams import stream_of

CASES = {  # the library's file, microbatches of a batch at p ranks
    "pipedream": lambda p: 1,
    "vertical_sync": lambda p: 1,
    "pipedream_2bw": lambda p: p,
    "pipemare": lambda p: 1,
}


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with ranks_of(3) as made:
        yield made


def trained(ranks: Ranks, name: str, p: int, k: int, kind: str) -> list[list[float]]:
    """Compare a run of two windows with the formula, and the versions in use with the claim; return the weights."""
    stream = stream_of(name, p=p, m=4 * p, k=k)
    claimed = pipesched.verify(name, p=p, m=4 * p, k=k).to_json()["versions"]["alive"]  # type: ignore[index]
    found = ranks.run(p, delayed.stepped, stream, k, kind)
    case = (name, p, k, kind, [result["error"] for result in found])
    assert max(result["error"] for result in found) <= 1e-12, case
    assert max(result["loss"] for result in found) <= 1e-12, case
    assert [result["versions"] for result in found] == claimed, case
    assert not any(result["left"] for result in found)
    return [result["last"] for result in found]


@pytest.mark.parametrize(("name", "kind"), [*zip(CASES, ("AdamW", "momentum", "SGD", "AdamW"), strict=True)])
def test_every_version_is_that_of_the_formula(ranks: Ranks, name: str, kind: str) -> None:
    """Three processes, two windows: all versions of all weights within 1e-12, and as many buffers as claimed."""
    trained(ranks, name, 3, CASES[name](3), kind)


def test_stash_with_batches_needs_fewer_versions(ranks: Ranks) -> None:
    """With p microbatches to a STEP, two versions are enough, and one on the last rank."""
    trained(ranks, "pipedream", 3, 3, "SGD")


@pytest.mark.parametrize("name", ["pipedream", "vertical_sync", "pipedream_2bw"])
def test_a_version_dropped_early_is_noticed(ranks: Ranks, name: str) -> None:
    """If STEPs overwrite versions that are still read, weights of a rank where that happens are not those of the
    formula.
    """
    k = CASES[name](3)
    found = ranks.run(3, delayed.overwritten, stream_of(name, p=3, m=12, k=k), k)
    assert any(dropped for dropped, _ in found) and not any(right for dropped, right in found if dropped), found


@pytest.mark.parametrize("what", ["DDP", "tied", "optimize"])
def test_what_has_one_version_only_is_refused(ranks: Ranks, what: str) -> None:
    """Replicas and tied weights are refused by name, and so is a runtime that does not say what STEP does."""
    said = ranks.run(3, delayed.refused, stream_of("pipedream", p=3, m=3, k=1), what)
    wanted = {"DDP": "DistributedDataParallel", "tied": "tied", "optimize": "Runtime(optimize=…)"}[what]
    assert all(wanted in message for message in said), said


def main() -> None:
    """Run all cases; print the largest differences."""
    for p in (3, 5):
        with ranks_of(p) as made:
            for kind in delayed.OPTIMIZERS:
                last = {name: trained(made, name, p, size(p), kind) for name, size in CASES.items()}
                pairs = zip(_flat(last["pipemare"]), _flat(last["pipedream"]), strict=True)
                far = max(abs(one - two) for one, two in pairs)
                print(f"p = {p}, {kind}: within 1e-12 of the formula; pipemare is {far:.1e} from pipedream", flush=True)


def _flat(value: object) -> list[float]:
    return [x for part in value for x in _flat(part)] if isinstance(value, list) else [value]  # type: ignore[list-item]


if __name__ == "__main__":
    main()
