"""The matrix, the error table and the generated modules agree with each other and with Kafka's definitions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

import lakebed.protocol
from lakebed import errors
from lakebed.protocol import MATRIX, Api, ErrorCode, Standing, advertised, code_for, find_row
from lakebed.protocol.apis import DORMANT, REFUSED
from lakebed.protocol.error_codes import CODES
from lakebed.protocol.generated.index import INDEX
from lakebed.protocol.loading import NAMES

REPOSITORY = Path(__file__).parents[3]


def test_every_codec_has_an_api_and_a_row() -> None:
    assert {int(api) for api in Api} == set(INDEX) == {int(api) for api in MATRIX}
    assert all(api.name.lower() == INDEX[api][0] for api in Api)


@pytest.mark.parametrize("api", list(Api))
def test_served_versions_have_a_codec(api: Api) -> None:
    _, first, last, _ = INDEX[api]
    row = MATRIX[api]
    assert first <= row.versions[0] <= row.versions[-1] <= last
    if row.advertised is not None:
        assert row.advertised[-1] == row.versions[-1]


def test_produce_is_told_from_version_0_but_read_from_3() -> None:
    assert (int(Api.PRODUCE), 0, 13) in advertised()
    assert find_row(Api.PRODUCE, 2) is None
    assert find_row(Api.PRODUCE, 3) is MATRIX[Api.PRODUCE]


def test_only_served_apis_are_told() -> None:
    told = {key for key, _, _ in advertised()}
    assert told == {int(row.api) for row in MATRIX.values() if row.standing is Standing.SERVED}
    assert not told & (DORMANT | REFUSED)
    assert list(advertised()) == sorted(advertised())


def test_refused_apis_are_read_and_dormant_ones_are_not_known() -> None:
    assert all(find_row(api, MATRIX[api].versions[0]) is not None for api in REFUSED)
    assert all(find_row(api, MATRIX[api].versions[0]) is None for api in DORMANT)
    assert find_row(4, 0) is None
    assert find_row(Api.FETCH, 99) is None


def test_only_the_login_comes_before_the_login() -> None:
    early = {row.api for row in MATRIX.values() if row.before_login}
    assert early == {Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE}


def test_error_codes_are_kafkas() -> None:
    ours = {code.name: (int(code), code.retriable) for code in ErrorCode}
    assert ours == {code.name.upper(): (int(code), code.retriable) for code in KioErrorCode}
    assert ErrorCode(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_every_error_of_ours_has_codes() -> None:
    public = {
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.LakebedError)
    }
    assert set(CODES) == public


@pytest.mark.parametrize(
    ("error", "partition", "coordinator"),
    [
        (errors.Ambiguous("x"), ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
        (errors.Fenced("x"), ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (errors.NotFound("x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND),
        (ValueError("x"), ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_error_becomes_the_code_of_its_nearest_class(
    error: Exception, partition: ErrorCode, coordinator: ErrorCode
) -> None:
    assert code_for(error) is partition
    assert code_for(error, coordinator=True) is coordinator


def test_who_may_retry_gets_a_retriable_code() -> None:
    for kind in (errors.Conflict, errors.Unavailable, errors.Ambiguous, errors.Fenced, errors.Closed):
        assert all(code.retriable for code in CODES[kind]), kind


def test_the_door_names_every_message_module() -> None:
    assert set(lakebed.protocol.__all__) >= NAMES
    assert all(hasattr(lakebed.protocol, name) for name in lakebed.protocol.__all__)
    with pytest.raises(AttributeError):
        _ = lakebed.protocol.nothing  # type: ignore[attr-defined]


def test_opening_the_room_loads_no_api() -> None:
    program = "import sys, json, lakebed.protocol; print(json.dumps([m for m in sys.modules if '.generated.' in m]))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY / "src"
    )
    assert json.loads(done.stdout) == ["lakebed.protocol.generated.index"]


def test_generated_modules_are_what_the_definitions_give() -> None:
    tool = REPOSITORY / "tools" / "compile_protocol.py"
    done = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
