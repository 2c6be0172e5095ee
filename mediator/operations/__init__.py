"""Operations in database-agnostic form: what a client wants, and what came of it."""
