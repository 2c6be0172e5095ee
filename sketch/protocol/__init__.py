"""The calls of the sketch, its keys, and its wire format (docs/sketch-wire.md)."""
