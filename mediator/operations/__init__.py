"""Operations in database-agnostic form: execution, and merging of their results."""
