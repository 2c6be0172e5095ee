"""Message flows: messages batched by the values that their plan looks up."""
