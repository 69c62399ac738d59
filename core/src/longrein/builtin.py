"""What longrein itself registers, through the same hooks as every plugin."""
