"""A real browser for tests and benches of the page: headless Chromium, driven by its own driver, with a profile that is thrown away."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.making import surroundings

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Colours that fade are measured half-way by the accessibility checks: without motion a page is at once what it will be.
    "--force-prefers-reduced-motion",
)


def binaries() -> tuple[str, str] | None:
    """Chromium and its driver; None where either is missing. scripts/browser installs them where it may."""
    browser = os.environ.get("CHROMIUM") or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    driver = os.environ.get("CHROMEDRIVER") or shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


def missing() -> tuple[str, bool]:
    """Why there is no browser, and whether that is to be held against the machine: in CI, where one could have been installed, it is."""
    root = os.geteuid() == 0 or (
        shutil.which("sudo") is not None and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0
    )
    able = shutil.which("apt-get") is not None and root
    return "no Chromium with chromedriver here (apt-get install chromium chromium-driver)", able and os.environ.get(
        "CI", ""
    ) not in (
        "",
        "0",
        "false",
    )


@contextlib.contextmanager
def browser(profile: Path, width: int = 1280, height: int = 900) -> Iterator[Any]:
    from selenium import webdriver

    found = binaries()
    assert found is not None
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.binary_location = found[0]
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(found[1]))
    try:
        resize(driver, width, height)
        yield driver
    finally:
        driver.quit()


def resize(driver: Any, width: int, height: int) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def scheme(driver: Any, name: str) -> None:
    """What the system prefers: light or dark. Emulated media replace what the flags said of motion, so it is said again."""
    features = [{"name": "prefers-color-scheme", "value": name}, {"name": "prefers-reduced-motion", "value": "reduce"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


@contextlib.contextmanager
def serving(*runs: Path | str, cache: Path) -> Iterator[str]:
    """`moot view` as a user types it; gives the address it prints, with the token."""
    command = [sys.executable, "-u", "-m", "moot", "view", *map(str, runs), "--port", "0"]
    environment = surroundings({"XDG_CACHE_HOME": str(cache), "PYTHONUNBUFFERED": "1"})
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as server:
        try:
            assert server.stdout is not None
            said = ""
            while not (found := re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", said)):
                line = server.stdout.readline()
                assert line, f"moot view ended: {said}"
                said += line
            yield found[0]
        finally:
            server.terminate()
            server.wait(20)


def signed_in(driver: Any, address: str) -> str:
    """The page's own address, once the browser has shown the token and got its cookie."""
    driver.get(address)
    return address.partition("?")[0]
