"""Files that survive a crash, JSON that others wrote, text that is safe to show, secrets, a user's own code."""
