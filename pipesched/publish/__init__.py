"""Publishes verdicts in the formats of other tools: SARIF for code scanning, JUnit for test reports."""
