"""Platforms compared: profiles, computed rows, decision rules, scores, recommendation, migration, claims checked."""
