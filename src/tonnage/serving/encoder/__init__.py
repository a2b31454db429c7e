"""The encoder server: classification, token classification, embeddings, reranking and question answering over HTTP."""
