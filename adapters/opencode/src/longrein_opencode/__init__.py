"""opencode for longrein."""
