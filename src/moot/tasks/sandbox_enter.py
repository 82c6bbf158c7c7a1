"""Enters namespaces of its own and becomes another program there: what bubblewrap does, where bubblewrap is not
installed.

Started by `sandbox.py` with a JSON object: what may be read, what to run. Needs Linux 5.12, and the right to make user
namespaces unless it is started by root. Knows nothing of moot.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

NEW_MOUNTS, NEW_UTS, NEW_IPC = 0x20000, 0x4000000, 0x8000000
NEW_USER, NEW_PIDS, NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000
NOSUID, NODEV, BIND, REC, PRIVATE = 2, 4, 4096, 16384, 1 << 18
DETACH = 2
NO_NEW_PRIVILEGES = 38
MOUNT_SETATTR, HERE, RECURSIVE = 442, -100, 0x8000
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4

libc = ctypes.CDLL(None, use_errno=True)


class MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]


def call(name: str, *arguments: object) -> None:
    if getattr(libc, name)(*(a.encode() if isinstance(a, str) else a for a in arguments)) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    call("mount", source, target, kind, ctypes.c_ulong(flags), data)


def read_only(path: str, flags: int = RECURSIVE, also: int = ATTR_NOSUID) -> None:
    wanted = MountAttributes(set=ATTR_RDONLY | also)
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    call("syscall", ctypes.c_long(MOUNT_SETATTR), HERE, path, flags, ctypes.byref(wanted), size)


def build(plan: dict[str, object]) -> None:
    """An empty file system with what may be read, a folder that may be written to, and nothing else."""
    mount("none", "/", None, REC | PRIVATE)
    mount("tmpfs", "/tmp", "tmpfs", NOSUID | NODEV)
    Path("/tmp/old").mkdir()
    Path("/tmp/new").mkdir()
    call("pivot_root", "/tmp", "/tmp/old")
    os.chdir("/")
    mount("tmpfs", "/new", "tmpfs", NOSUID | NODEV, "size=1m,mode=755")
    for path, target in plan["links"]:  # type: ignore[attr-defined]
        Path(f"/new{path}").symlink_to(target)
    for source, path in plan["readable"]:  # type: ignore[attr-defined]
        inside = Path(f"/new{path}")
        inside.parent.mkdir(parents=True, exist_ok=True)
        inside.mkdir(exist_ok=True) if Path(f"/old{source}").is_dir() else inside.touch()
        mount(f"/old{source}", str(inside), None, BIND | REC)
        read_only(str(inside), also=ATTR_NOSUID | (0 if path.startswith("/dev") else ATTR_NODEV))
    Path("/new/scratch").mkdir()
    room = f"size={plan['scratch_megabytes']}m,nr_inodes=256,mode=1777"
    mount("tmpfs", "/new/scratch", "tmpfs", NOSUID | NODEV, room)
    os.chdir("/new")
    call("pivot_root", ".", ".")
    call("umount2", ".", DETACH)
    os.chdir("/")
    read_only("/", flags=0)


def main() -> None:
    plan = json.loads(sys.argv[1])
    uid, gid = os.getuid(), os.getgid()
    call("unshare", NEW_MOUNTS | NEW_UTS | NEW_IPC | NEW_PIDS | NEW_NETWORK | (NEW_USER if uid else 0))
    if uid:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
    # The first process of its namespace: when it ends, the kernel ends everything in there.
    build(plan)
    call("prctl", NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    os.execve(plan["command"][0], plan["command"], {})  # with it go the powers over these namespaces


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"no sandbox: {error}")
