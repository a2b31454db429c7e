"""How the gateway signs in to an upstream; secrets are read where they are used, and shown nowhere."""

from tonnage.gateway.signing.sign_in import SignIn
from tonnage.gateway.signing.signers import make_signer

__all__ = ["SignIn", "make_signer"]
