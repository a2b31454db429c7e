"""The gateway file: its keys, the checks over several of them, and the gateway that it describes."""
