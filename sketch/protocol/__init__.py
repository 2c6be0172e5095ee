"""What the parties of the sketch say to each other, and in which form (docs/sketch-wire.md)."""
