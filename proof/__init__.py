"""The promises of gptsh, tried until they break: ``make proof`` writes docs/reliability.md."""
