"""The browser and the runs that the tests of the page share; an import in the tests themselves looks unused, and gets lost."""

from support.viewing import driver, place, runs, url

__all__ = ["driver", "place", "runs", "url"]
