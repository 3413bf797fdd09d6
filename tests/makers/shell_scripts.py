"""Random bash scripts that start a training run, with the usual ways of setting values and passing options."""

from __future__ import annotations

import random

VALUES = (  # how a script gets a number, NAME and N to be replaced; the variable is used as $NAME
    "NAME=N",
    "export NAME=N",
    "NAME=${NAME:-N}",
    ": ${NAME:=N}\nNAME=$NAME",
    "NAME=$((N * 2 / 2))",
    "HALF=N\nNAME=$(( HALF + 0 ))",
    "LIST=(7 N 9)\nNAME=${LIST[1]}",
    "NAME=$(echo N)",
    "NAME=`expr N + 0`",
    "declare NAME=N",
    "if [ 1 -lt 2 ]; then NAME=N; else NAME=7; fi",
    'if [ "$UNSET_HERE" = x ]; then NAME=7; else NAME=N; fi',
    "case small in small) NAME=N ;; *) NAME=7 ;; esac",
    "NAME=7\n[[ small == small ]] && NAME=N",
    'NAME=7\ntrue || NAME=1\nNAME="N"',
    "read NAME <<< N",
    "printf -v NAME %s N",
    "let NAME=N",
    "set_it() { NAME=$1; }\nset_it N",
    "TEXT=x_N\nNAME=${TEXT##*_}",
    "TEXT=N_x\nNAME=${TEXT%_*}",
    "TEXT=Nyy\nNAME=${TEXT:0:1}",
    "NAME=7\nfor NAME in 5 N; do :; done",
    "while read -r line; do NAME=$line; done <<EOF\nN\nEOF",
    "[ $# -gt 0 ] && NAME=$1 || NAME=N",
    "NAME=N # 7",
    "declare -A MAP\nMAP[a]=N\nNAME=${MAP[a]}",
)
OPTIONS = (  # how options reach a command: OPTS are the options, RUN the program before them
    "RUN OPTS",
    "RUN \\\n  OPTS",
    'ARGS=(\n  OPTS  # all\n)\nRUN "${ARGS[@]}"',
    'ARGS="OPTS"\nRUN $ARGS',
    'ARGS=" OPTS "\nRUN $ARGS --bf16',
    "ARGS=()\nARGS+=(OPTS)\nRUN ${ARGS[@]} --bf16",
    'ARGS="--bf16"\nARGS="$ARGS OPTS"\nRUN $ARGS',
    'ARGS="--bf16"\nARGS+=" OPTS"\nRUN ${ARGS}',
    'CMD="RUN OPTS"\n$CMD',
    'CMD="RUN OPTS"\neval $CMD',
    'bash -c "RUN OPTS"',
    'CMD="RUN OPTS"\nbash -c "$CMD"',
    'CMD="RUN OPTS"\nsh -c "$CMD"',
    "bash <<EOF\nRUN OPTS\nEOF",
    'start() { RUN "$@"; }\nstart OPTS',
    "if true; then\n  RUN OPTS\nfi",
    'if [ "$UNSET_HERE" = x ]; then ARGS="OPTS --pipeline-model-parallel-size 1"; else ARGS="OPTS"; fi\nRUN $ARGS',
    "for once in 1; do RUN OPTS; done",
    "env A=1 RUN OPTS",
    "A=1 RUN OPTS > log.txt 2>&1",
    "(cd . && RUN OPTS) | cat",
    "echo OPTS | xargs RUN",
    'set -- OPTS\nRUN "$@"',
    "RUN $(echo OPTS)",
    "cat > inner.sh <<EOF\nRUN OPTS\nEOF\nbash inner.sh",
    'ONE=(OPTS)\nTWO=(--bf16 "${ONE[@]}")\nRUN ${TWO[*]}',
    'if [ 2 -gt 1 ]; then\n  ARGS=(OPTS)\nelse\n  ARGS=(--pipeline-model-parallel-size 16)\nfi\nRUN "${ARGS[@]}"',
)
RUN = "torchrun --nproc_per_node 8 pretrain_gpt.py --use-mcore-models"


def script(chance: random.Random) -> str:
    """Return a script."""
    p, batch = chance.choice((1, 2, 4)), chance.choice((8, 16, 32))
    lines = ["#!/bin/bash"]
    used = []
    for name, number in (("PP", p), ("GBS", batch), ("LAYERS", 16)):
        if chance.random() < 0.7:
            lines.append(chance.choice(VALUES).replace("NAME", name).replace("N", str(number)))
            used.append(f"${name}" if chance.random() < 0.6 else f"${{{name}}}")
        else:
            used.append(str(number))
    first = chance.choice(("--pipeline-model-parallel-size X", "--pipeline-model-parallel-size=X")).replace(
        "X", used[0]
    )
    options = f"{first} --global-batch-size {used[1]} --num-layers {used[2]} --micro-batch-size 1"
    if chance.random() < 0.2:
        options += " --num-layers-per-virtual-pipeline-stage 1" if p > 1 else ""
    lines.append(chance.choice(OPTIONS).replace("OPTS", options).replace("RUN", RUN))
    return "\n".join(lines) + "\n"
