"""A Model Context Protocol server: agents ask what the commands answer."""
