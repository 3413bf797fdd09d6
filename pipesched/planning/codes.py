"""Codes of the planner's findings."""

from __future__ import annotations

from pipesched.diagnostics import AnyCode


class PlanningCode(AnyCode):
    """The codes of the planner's findings."""

    MODEL_SYNTAX = "PS230"
    MODEL_UNKNOWN = "PS231"
    MODEL_MISSING = "PS232"
    MODEL_VALUE = "PS233"
    MODEL_SHAPE = "PS234"
    MODEL_STAGES = "PS235"
    MODEL_PARALLEL = "PS236"
    MODEL_NAME = "PS237", 2
    NO_DEVICE = "PS240", 2
    DEVICE_SYNTAX = "PS241"
    DEVICE_KEY = "PS242"
    DEVICE_VALUE = "PS243"
    EFFICIENCY = "PS244", 2
    NO_PLAN = "PS245"
    CLUSTER = "PS246", 2
    CHOICE = "PS247", 2
    NO_CHOICE = "PS248", 2
    NO_CLUSTER = "PS249", 2
    TRAINER = "PS250", 2
    MODEL_UNCOUNTED = "PS251"
    TWO_DEVICES = "PS252", 2
    NO_TIMES = "PS253", 2
    OVER_BYTES = "PS502"
    OTHER_BATCH = "PS909"
