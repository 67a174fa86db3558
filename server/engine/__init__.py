"""The engine: everything that runs in, or talks to, the process that owns llama.cpp."""
