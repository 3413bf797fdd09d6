"""``pipesched prove``: properties and claims for every size and every cost."""

from __future__ import annotations

import click

from pipesched.command import flags
from pipesched.command.options import OUTPUT, SIZES
from pipesched.command.sizes import one

OPTIONS = (*SIZES, *OUTPUT)


@click.command
@click.argument("schedule", type=flags.target)
@flags.options("prove")
def prove(schedule: str, **given: object) -> int:
    """Prove the properties and claims of a .ps file for every p, every m and all costs.

    \b
    Each property (complete, no deadlock) and each claim is proved for a domain, refuted with the smallest size at
    which it fails, or not settled. Given parameters are fixed.
      pipesched prove 1f1b
      pipesched prove interleaved --p 4          every m at one p
    Properties that are not settled for all p together are tried at p = 2, 3 and 4.
    Needs islpy: pip install 'pipesched[prover]'
    --json and -o cert.json write a certificate, which `pipesched verify cert.json` checks independently.
    Exit status: 0 all is proved, 1 something is refuted, 2 the command line is wrong, 3 something is not settled.
    """
    from pipesched.compile import read
    from pipesched.prover import prove as verb

    sizes = one("prove", flags.grid(given))
    with flags.output_of(given) as out:
        return out.result(verb.prove(read(schedule), sizes))
