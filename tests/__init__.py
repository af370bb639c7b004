"""The tests of gptsh."""

import sys

# Each worker reads all files: compiled ones take it a second, even where the environment does not want them written.
sys.dont_write_bytecode = False
