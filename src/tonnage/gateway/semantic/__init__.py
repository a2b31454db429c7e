"""Answers given again to questions that mean the same, by their embeddings, where a route asks for it."""
