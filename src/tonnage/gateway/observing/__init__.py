"""What is kept and told of requests beside their way: the request log. Nothing here holds a request up."""
