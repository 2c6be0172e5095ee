"""Message flows: messages that are batched by the values their plan looks up."""
