"""What every room may use: crash-safe files, JSON that others wrote, text that is safe to show, secrets, a user's own
code."""
