"""vLLM as the policy server: its venv, its flags, its control routes, and a keeper process of ours around it."""
