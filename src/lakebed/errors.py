"""Every public error, named by what the caller does about it.

    LakebedError
    ├── Conflict       someone was faster: refresh and retry
    │   └── Exists     create-if-absent found the name taken
    ├── NotFound       nothing has that name
    ├── Unavailable    retry later
    │   └── Ambiguous  it may have happened, or may happen yet: look before you retry
    ├── Fenced         another holds the right to act: stop
    ├── Invalid        fix the request, the configuration or the version of the program
    ├── Corrupt        stored bytes are wrong: stop and repair
    └── Closed         the component has been shut down

A message says what is wrong and ends with what to do. Nothing decides by the text of a message.
"""

from __future__ import annotations


class LakebedError(Exception):
    """The root of all errors that Lakebed raises on purpose."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem}. {remedy}" if remedy else problem)
        self.problem = problem
        self.remedy = remedy


class Conflict(LakebedError):
    """Someone was faster: refresh and retry."""


class Exists(Conflict):
    """Create-if-absent found the name taken. It may have been taken by our own earlier attempt."""


class NotFound(LakebedError):
    """Nothing has that name."""


class Unavailable(LakebedError):
    """The other side did not do it: retry later."""


class Ambiguous(Unavailable):
    """The request may have been carried out, or may be carried out yet: look before you retry."""


class Fenced(LakebedError):
    """Another holder has the right to act now: stop."""


class Invalid(LakebedError):
    """The request, the configuration or the format is not acceptable: fix it."""


class Corrupt(LakebedError):
    """Stored bytes are not what was written: stop and repair."""


class Closed(LakebedError):
    """The component has been shut down."""


EXIT_DONE, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
