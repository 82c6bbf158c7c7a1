"""A seccomp filter: the system calls that a program in a sandbox is refused, as the kernel wants to be told.

They reach out of namespaces (keys, vsock), hold memory that nobody counts (segments of shared memory, memfds), or are
large and of no use to a program that solves a problem (io_uring, userfaultfd, bpf). Written out by hand, so that no
library has to be there.
"""

from __future__ import annotations

import errno
import platform
import struct

ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""By name: which number of a call is theirs, and how the kernel calls them."""
REFUSED = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "kcmp": (312, 272), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "shmget": (29, 194),
    "shmat": (30, 196), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180), "memfd_create": (319, 279),
    "memfd_secret": (447, 447), "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "userfaultfd": (323, 282), "bpf": (321, 280), "perf_event_open": (298, 241), "fanotify_init": (300, 262),
    "syslog": (103, 116), "quotactl": (179, 60), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "kexec_load": (246, 104),
}  # fmt: skip
CLONE, CLONE3, SOCKET, SOCKETPAIR = (56, 220), (435, 435), (41, 198), (53, 199)
FAMILIES = (1, 2, 10)
"""Of sockets that may be made: AF_UNIX, AF_INET, AF_INET6. Those have namespaces."""
NEW_NAMESPACES = 0x7E020000
X32 = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _ANY_OF, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _REFUSE, _NO_SUCH_CALL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS


def call_filter(machine: str = platform.machine()) -> bytes:
    """The filter as the kernel reads it; empty for a machine whose calls are not known here."""
    if machine not in ARCHITECTURES:
        return b""
    column, architecture = ARCHITECTURES[machine]
    steps = [_step(_LOAD, _ARCHITECTURE), *_unless(architecture, _REFUSE)]
    steps += [_step(_LOAD, _NUMBER), *_where(_AT_LEAST, X32, _REFUSE)]
    for numbers in REFUSED.values():
        steps += _where(_EQUAL, numbers[column], _REFUSE)
    steps += _where(_EQUAL, CLONE3[column], _NO_SUCH_CALL)  # its flags cannot be looked at; who is told so uses clone
    argument = _step(_LOAD, _FIRST_ARGUMENT)
    allowed = [step for family in FAMILIES for step in _where(_EQUAL, family, _ALLOW)]
    for number in (SOCKET[column], SOCKETPAIR[column]):
        steps += _block(number, [argument, *allowed, _step(_RETURN, _REFUSE)])
    steps += _block(CLONE[column], [argument, *_where(_ANY_OF, NEW_NAMESPACES, _REFUSE), _step(_RETURN, _ALLOW)])
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _where(test: int, value: int, verdict: int) -> list[bytes]:
    return [_step(test, value, 0, 1), _step(_RETURN, verdict)]


def _unless(value: int, verdict: int) -> list[bytes]:
    return [_step(_EQUAL, value, 1, 0), _step(_RETURN, verdict)]


def _block(number: int, steps: list[bytes]) -> list[bytes]:
    """Steps for one call alone, the last of which returns."""
    return [_step(_EQUAL, number, 0, len(steps)), *steps]
