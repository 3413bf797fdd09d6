"""Writes trainers' configurations for a choice made by `plan`: the inverse of `check`.

    choice ──a trainer's rules──> refused, or files ──check──> no error, or refused

launchers    TRAINERS, one row each, and `launcher`, which `plan` calls
megatron     a command line                torchtitan    a TOML file, and a CSV          deepspeed    JSON and Python
"""
