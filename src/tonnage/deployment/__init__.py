"""Files that keep a command of Tonnage running somewhere: systemd units, a Compose file, Kubernetes manifests."""
