"""Where questions come from. A task is a stream of training questions, a held-out set, and a way to tell right from wrong."""

from moot.tasks.task import Task, load

__all__ = ["Task", "load"]
