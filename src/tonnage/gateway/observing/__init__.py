"""Records of requests, made beside them: the request log, spans. Nothing here delays a request."""
