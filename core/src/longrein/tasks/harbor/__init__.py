"""Tasks in Harbor's format: what of them can be honoured without a container engine, and why the others are refused.

add-two/
  task.toml            timeouts, resources, metadata
  instruction.md       what the agent is asked
  environment/         a Dockerfile; read here, never built
  tests/test.sh        writes a reward to /logs/verifier/reward.txt or reward.json
  solution/solve.sh    makes a right solution (optional)
"""

from longrein.tasks.harbor.taskset import HarborTasks, holds_tasks
from longrein.tasks.harbor.verifier import HarborVerifier

__all__ = ["HarborTasks", "HarborVerifier", "holds_tasks"]
