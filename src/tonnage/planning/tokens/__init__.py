"""Token APIs beside machines: the ways to buy tokens, and the options among them."""
