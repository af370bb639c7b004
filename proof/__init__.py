"""Stress tests of what gptsh promises: ``make proof`` runs them and writes docs/reliability.md."""
