"""axe-core in the browser of the tests: what people who see badly, or use no mouse, would stumble over."""

from __future__ import annotations

from importlib.resources import files
from typing import Any


def findings(driver: Any) -> list[str]:
    """What axe calls serious or critical on the page as it stands, each with its first places."""
    driver.execute_script(files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    found = driver.execute_async_script(
        "const done = arguments[arguments.length - 1]; axe.run(document, {resultTypes: ['violations']}).then((r) => done(r.violations))"
    )
    return [
        f"{each['impact']} {each['id']}: {each['help']}: {[node['html'][:160] for node in each['nodes'][:3]]} of {len(each['nodes'])}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
