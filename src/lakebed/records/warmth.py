"""Load or compile the kernels now, so that the first segment does not wait for them.

For processes that will decode or encode soon: a Spark daemon before it forks, a settler, a broker in its idle time.
"""

from __future__ import annotations

from lakebed.records.columns import Decoder
from lakebed.records.encoder import Encoder
from lakebed.records.rows import Record, build_batch


def warm() -> None:
    """Run one record through both kernels."""
    decoder = Decoder(pass_bytes=4096, batch_bytes_max=4096)
    for decoded in decoder.decode(build_batch([Record(0, 0, None, b"")]), [0]):
        Encoder().encode(decoded.columns)
