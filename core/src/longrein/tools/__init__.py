"""The tools of a session's environment: the engine answers for them on a socket, and a small program speaks MCP inside the sandbox."""
