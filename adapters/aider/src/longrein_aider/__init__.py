"""Aider for longrein."""
