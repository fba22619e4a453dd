"""What runs a task type: a coroutine, a thread, an isolated process or a command."""
