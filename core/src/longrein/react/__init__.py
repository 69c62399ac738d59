"""The built-in agent `react`: a plain tool loop, so that an agent's own loop can be measured against none."""
