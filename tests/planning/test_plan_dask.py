"""A plan or a sweep gives the same result with a Dask cluster as without; skipped if `distributed` is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pipesched
from pipesched.__main__ import main
from tests.planning.test_plan import SMALL_PLAN, files

distributed = pytest.importorskip("distributed", reason="the extra `planning` is not installed")
pytestmark = pytest.mark.filterwarnings("default")  # of its packages

__all__ = ["files"]


def test_two_workers_find_the_same_plan(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan is the same by `--executor dask:ADDRESS` and by the cluster's own executor in Python; both workers took
    part."""
    assert main(["plan", *SMALL_PLAN, "--executor", "here", "--json"]) == 0
    here = json.loads(capsys.readouterr().out)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert main(["plan", *SMALL_PLAN, "--executor", f"dask:{cluster.scheduler_address}", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == here
        made = pipesched.plan(
            model="model.toml",
            device="device.toml",
            gpus=8,
            only=["c=1", "b=1,2", "split=even"],
            executor=client.get_executor(),
        )
        assert json.loads(json.dumps(made.to_json())) == here
        sweep = ("verify", "1f1b", "missing.ps", "zb_h1", "--p", "2..5", "--m", "4,8")
        assert main([*sweep, "--executor", f"dask:{cluster.scheduler_address}"]) == 2
        elsewhere = capsys.readouterr()
        assert main([*sweep]) == 2 and capsys.readouterr() == elsewhere
        did = client.run(lambda dask_worker: dask_worker.state.executed_count)
        assert len(did) == 2 and all(did.values())


def test_a_cluster_that_is_not_there_is_told(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error comes after seconds, with the address."""
    assert main(["plan", *SMALL_PLAN, "--executor", "dask:tcp://127.0.0.1:9", "--json"]) == 2
    (found,) = json.loads(capsys.readouterr().out)["diagnostics"]
    assert found["code"] == "PS249" and "tcp://127.0.0.1:9" in found["message"]
