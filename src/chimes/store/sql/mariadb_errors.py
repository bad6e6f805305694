"""What the errors of MariaDB and its driver mean."""

from __future__ import annotations

import socket

from chimes.store.sql.server import Trouble

#: Deadlock, lock wait (also for a table that is just being changed), a row that changed under a
#: snapshot (from 11.6.2), a duplicate key, a table that changed since the transaction began.
_CONFLICT = {1213, 1205, 1020, 1062, 1412}
#: `read_only`, a read-only transaction, a server in read-only mode.
_READ_ONLY = {1290, 1792, 1836}
#: Gone, lost, killed, shutting down, broken packets, closed for being idle.
_LOST = {2006, 2013, 2014, 2027, 2055, 1053, 1152, 1184, 1927, 1156, 1157, 1158, 1159, 1160, 1161}
_REFUSED = {
    # Cannot be reached, or not in time.
    *(2002, 2003, 2005, 1042, 1043, 1129, 1130),
    # Too many connections, no memory, over a quota.
    *(1040, 1203, 1226, 1037, 1038, 1041),
    # Wrong user, password or database, missing rights.
    *(1044, 1045, 1049, 1142, 1143, 1227, 1370, 1698),
    # Disk full or broken, not ready (Galera).
    *(1021, 1026, 1030, 1114, 1047),
    # Took too long, or was stopped by hand.
    *(1317, 1969, 3024, 1028, 1078),
}


def trouble_of(error: BaseException) -> Trouble | None:
    """Looks through what the errors are wrapped in."""
    seen: BaseException | None = error
    while seen is not None:
        found = _trouble(seen)
        if found is not None:
            return found
        seen = getattr(seen, "orig", None) or seen.__cause__
    return None


def _trouble(error: BaseException) -> Trouble | None:
    match error:
        case TimeoutError() | ConnectionRefusedError() | socket.gaierror():
            return Trouble.REFUSED
        case OSError() | EOFError():
            return Trouble.LOST
        case RuntimeError() if "ransport" in str(error):
            return Trouble.LOST  # an event loop's word for a closed connection
    number = error_number(error)
    if number in _CONFLICT:
        return Trouble.CONFLICT
    if number in _READ_ONLY:
        return Trouble.READ_ONLY
    if number in _LOST or (number == 0 and _is_of_driver(error)):
        # Number 0 is the driver's own word for a connection that is closed or out of step.
        return Trouble.LOST
    return Trouble.REFUSED if number in _REFUSED else None


def error_number(error: BaseException) -> int | None:
    if not _is_of_driver(error) or not error.args:
        return None
    number = error.args[0]
    return number if isinstance(number, int) else 0


def _is_of_driver(error: BaseException) -> bool:
    return type(error).__module__.startswith("asyncmy")
