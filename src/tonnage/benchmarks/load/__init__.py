"""An open-loop load generator: requests go out when they are due, whatever the service does meanwhile."""
