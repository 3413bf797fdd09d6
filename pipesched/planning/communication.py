"""How long it takes that ranks with the same parameters, n = d c, agree on them: bytes over bandwidth, no latency.

    ZeRO 0   gradients are all-reduced once a step: scattered, and gathered        (n - 1) / n of all, twice
         1   gradients are scattered and parameters gathered, once a step
         2   gradients are scattered for every microbatch, parameters gathered once a step
         3   that, and parameters are gathered for every F and every backward

Rajbhandari et al. 2020, section 7; with a pipeline, what is divided cannot wait for the end of the step. What the ranks
of a layer, a sequence or of experts send is in `transformer.traffic`, what stages send in `transformer.times`.
"""

from __future__ import annotations

from pipesched.transformer.config import Training, Transformer
from pipesched.transformer.devices import Device
from pipesched.transformer.state import copies
from pipesched.transformer.traffic import link


def between_copies(a: Transformer, x: Training, counts: tuple[float, float], device: Device) -> tuple[float, float]:
    """Seconds of one gathering and of one scattering. counts: parameters of a rank, those of experts apart."""
    gather = scatter = 0.0
    bandwidth = float(link(device, x.tensor * x.context * x.data))
    for count, of_experts in zip(counts, (False, True), strict=True):
        n = copies(x, of_experts=of_experts)
        share = count * (n - 1) / n / bandwidth
        gather += share * (a.dtype_bytes if x.zero else float(x.gradient_bytes))
        scatter += share * float(x.gradient_bytes)
    return gather, scatter
