"""How the gateway signs in to an upstream; secrets are read where they are used, and shown nowhere."""
