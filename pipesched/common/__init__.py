"""Modules that several extensions need and the core does not: refusals by feature, users' functions, child
processes.
"""
