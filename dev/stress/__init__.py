"""Stress tests of what gptsh promises: ``make stress`` runs them and writes docs/reliability.md."""
