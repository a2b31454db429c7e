"""A Kubernetes cluster as a place: its objects, their check before they are sent, the executor, its answers."""
