"""Terraform files for what a place needs before its first run: network, bucket, roles."""
