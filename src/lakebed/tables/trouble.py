"""What table libraries raise, said in Lakebed's errors, so that callers know what to do about it.

Invariant: nothing is decided by the text of a message. A write whose answer is missing is `Ambiguous`: the step may be repeated,
because it looks first.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from deltalake.exceptions import DeltaError, DeltaProtocolError
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    OAuthError,
    RESTError,
    UnauthorizedError,
    ValidationError,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from lakebed.errors import Ambiguous, Conflict, Corrupt, Invalid, Unavailable

_MISREAD = (ValidationError, EOFError, ValueError, LookupError, ArithmeticError, zlib.error)
"""What pyiceberg's readers raise on bytes that are not what was written; they have no error of their own for it."""
_LATER = "It is repeated at the next round; check that the catalog and the bucket are up"


@contextmanager
def asking_catalog(what: str, *, writing: bool = False) -> Iterator[None]:
    """Translate what goes wrong while a catalog or Iceberg's files are asked."""
    try:
        yield
    except (UnauthorizedError, ForbiddenError, OAuthError) as error:
        raise Invalid(f"the catalog refuses {what} ({_kind(error)})", "Check its credential") from error
    except BadRequestError as error:
        raise Invalid(
            f"the catalog does not accept {what}: {error}", "Check namespace, warehouse and location"
        ) from error
    except CommitFailedException as error:
        raise Conflict(f"{what}: someone was faster", "Repeat the step") from error
    except NotImplementedError as error:
        raise Invalid(f"the catalog has no means for {what}", "Use another catalog") from error
    except CommitStateUnknownException as error:
        raise Ambiguous(f"{what}: the catalog does not know", _LATER) from error
    except FileNotFoundError as error:
        raise Corrupt(f"{what}: a file that the table names is missing ({error})", "Restore it from a copy") from error
    except (RESTError, DBAPIError, OSError) as error:
        failure = Ambiguous if writing else Unavailable
        raise failure(f"{what}: the catalog or its files cannot be reached ({_kind(error)})", _LATER) from error
    except SQLAlchemyError as error:
        raise Invalid(f"{what}: the catalog's database does not work ({_kind(error)})", "Check its uri") from error
    except _MISREAD as error:
        raise Corrupt(
            f"{what}: its metadata cannot be understood ({_kind(error)}: {_first_line(error)})",
            "Point the catalog at an older metadata file, then restore the table to what the stream holds",
        ) from error


@contextmanager
def asking_delta(what: str, *, writing: bool = False) -> Iterator[None]:
    """Translate what goes wrong while a Delta table is asked."""
    try:
        yield
    except OSError as error:
        failure = Ambiguous if writing else Unavailable
        raise failure(f"{what}: the table cannot be reached ({_kind(error)})", _LATER) from error
    except DeltaProtocolError as error:
        raise Invalid(
            f"{what}: someone has given the table features we do not have", "Derive a table instead"
        ) from error
    except DeltaError as error:
        raise Corrupt(f"{what}: {_first_line(error)}", "Look at the newest files of its _delta_log") from error


def _kind(error: Exception) -> str:
    return type(error).__name__


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
