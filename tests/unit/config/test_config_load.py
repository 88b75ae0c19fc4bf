"""Loading: which layer wins, and what each mistake is answered with."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakebed.config import Address, Secret, Settings, load_settings
from lakebed.errors import Invalid

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(text: str) -> Path:
        path = tmp_path / "lakebed.yaml"
        path.write_text(text)
        return path

    return write_file


def refusal(path: Path | None = None, **layers: dict[str, str]) -> Invalid:
    with pytest.raises(Invalid) as caught:
        load_settings(path, **layers)
    return caught.value


def test_nothing_given_gives_the_documented_defaults(tmp_path: Path) -> None:
    loaded = load_settings(folder=tmp_path)
    assert loaded.settings == Settings()
    assert loaded.origins == {}
    assert loaded.settings.root == "./lakebed-data"
    assert loaded.settings.domains == 1
    assert loaded.settings.kernel.retention_s == 7 * 86_400
    assert loaded.settings.leases.ttl_s == 10
    assert loaded.settings.kafka.listen == Address("127.0.0.1", 9092)
    assert loaded.settings.http.listen == Address("127.0.0.1", 8080)


def test_file_in_the_folder_is_found(write: Write) -> None:
    path = write("domains: 4\n")
    assert load_settings(folder=path.parent).settings.domains == 4


def test_variable_wins_over_file_and_command_line_over_both(write: Write) -> None:
    path = write("root: from-file\ndomains: 2\nkernel:\n  retention: 1d\n")
    loaded = load_settings(path, {"LAKEBED__ROOT": "from-variable", "LAKEBED__DOMAINS": "3"}, {"root": "from-option"})
    assert (loaded.settings.root, loaded.settings.domains) == ("from-option", 3)
    assert loaded.settings.kernel.retention_s == 86_400
    assert loaded.origins == {"root": "--root", "domains": "LAKEBED__DOMAINS", "kernel.retention": f"{path}:4"}


def test_short_root_variable_works_and_the_long_one_wins() -> None:
    assert load_settings(environment={"LAKEBED_ROOT": "a"}).settings.root == "a"
    assert load_settings(environment={"LAKEBED_ROOT": "a", "LAKEBED__ROOT": "b"}).settings.root == "b"


def test_empty_and_foreign_variables_are_ignored() -> None:
    environment = {"LAKEBED_ROOT": "", "LAKEBED__DOMAINS": "", "LAKEBED_SOAK": "1", "PATH": "/bin"}
    assert load_settings(environment=environment).settings == Settings()


def test_empty_file_empty_section_and_unset_optional_give_defaults(write: Write) -> None:
    assert load_settings(write("")).settings == Settings()
    assert load_settings(write("# nothing\n---\n")).settings == Settings()
    assert load_settings(write("kernel:\nobjects:\n  endpoint:\n")).settings == Settings()


def test_texts_that_yaml_takes_for_something_else_stay_texts(write: Write) -> None:
    loaded = load_settings(write("root: 2026-11-15\nobjects:\n  region: no\n  secret_key: 0123\n"))
    assert loaded.settings.root == "2026-11-15"
    assert loaded.settings.objects.region == "no"
    assert loaded.settings.objects.secret_key == Secret("0123")


def test_unknown_key_is_refused_with_line_suggestion_and_allowed_keys(write: Write) -> None:
    path = write("domains: 1\nkernel:\n  retension: 7d\n")
    error = refusal(path)
    assert error.problem == f"{path}:3: there is no key 'retension' in kernel"
    assert error.remedy.startswith("Did you mean retention (default 7d)? Allowed keys: retention, checkpoint_every,")


def test_unknown_section_is_refused_with_the_sections(write: Write) -> None:
    error = refusal(write("kernal:\n  retention: 7d\n"))
    assert ":1: there is no key 'kernal' at the top" in error.problem
    assert "Did you mean kernel?" in error.remedy
    assert "log_store" in error.remedy


def test_bad_value_is_refused_with_line_allowed_values_and_default(write: Write) -> None:
    path = write("kernel:\n  # how\n  checkpoint_compression: gzip\n")
    error = refusal(path)
    assert error.problem == f"{path}:3: the value 'gzip' of kernel.checkpoint_compression is not one of the choices"
    assert error.remedy == "Use one of none, zstd; the default is none"


@pytest.mark.parametrize(
    ("text", "problem", "remedy"),
    [
        ("domains: 0", "is too small", "at least 1, at most 256; the default is 1"),
        ("domains: 257", "is too large", "at most 256"),
        ("domains: many", "is not a whole number", "a whole number"),
        ("domains:", "domains has no value", "the default, 1"),
        ("domains: [1]", "not a list or a section", "the default is 1"),
        ("kernel: {retention: 7}", "is not a duration", "a duration such as 250ms, 10s or 7d, at least 1m"),
        ("kernel: {group_max_bytes: much}", "is not a size", "a size such as 512kB"),
        ("kernel: 7", "kernel is a section, not a value", "Allowed keys: retention"),
        ("kafka: {listen: 9092}", "is not an address", "an address such as 127.0.0.1:9092"),
        ("root: ''", "is empty", "the default is ./lakebed-data"),
        ("- root", "a mapping of keys to values", "Allowed keys: root"),
        ("just text", "a mapping of keys to values", "Allowed keys: root"),
        ("<<: {domains: 1}", "there is no key '<<'", "Allowed keys"),
        ("? [a]\n: 1", "there is no key '?'", "Allowed keys"),
        ("root: a\nroot: b", ":2: the key 'root' at the top stands also in line 1", "Keep one"),
        ("root: [", "is not YAML", "Correct that line"),
        ("root: a\n\tb: c", ":2: is not YAML", "Correct that line"),
        ("root: a\n--- \nroot: b", "is not YAML", "Correct that line"),
        ("root: \x07", "is not YAML text", "unprintable"),
        ('root: "a\\nb"', "unprintable", "Use a text"),
        ("root: s3://key:pass@bucket/x", "credentials", "objects.access_key"),
        ("root: s3://b/x\nlog_store: {kind: files}", ":2: log_store.kind is files", "Use auto, objects or oxia"),
    ],
)
def test_mistake_in_the_file_is_named_with_its_remedy(write: Write, text: str, problem: str, remedy: str) -> None:
    error = refusal(write(text + "\n"))
    assert problem in error.problem
    assert "lakebed.yaml" in error.problem
    assert remedy in error.remedy


def test_bad_value_is_refused_also_where_a_variable_covers_it(write: Write) -> None:
    with pytest.raises(Invalid, match="too small"):
        load_settings(write("domains: 0\n"), {"LAKEBED__DOMAINS": "2"})


def test_unknown_variable_is_refused_with_a_suggestion() -> None:
    error = refusal(environment={"LAKEBED__KERNEL__RETENSION": "7d"})
    assert "LAKEBED__KERNEL__RETENSION sets nothing" in error.problem
    assert "Did you mean LAKEBED__KERNEL__RETENTION (default 7d)?" in error.remedy


def test_bad_variable_is_named() -> None:
    error = refusal(environment={"LAKEBED__LEASES__TTL": "soon"})
    assert error.problem == "LAKEBED__LEASES__TTL: the value 'soon' of leases.ttl is not a duration"


def test_bad_secret_is_not_shown() -> None:
    error = refusal(environment={"LAKEBED__OBJECTS__SECRET_KEY": "hun\0ter2"})
    assert "ter2" not in str(error)


def test_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    assert "absent.yaml: cannot be read" in refusal(tmp_path / "absent.yaml").problem
    assert "cannot be read" in refusal(tmp_path).problem


def test_file_that_is_not_text_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "lakebed.yaml"
    path.write_bytes(b"domains: 1\nroot: \xff\xfe\n")
    assert refusal(path).problem == f"{path}:2: is not UTF-8 text"


def test_file_that_is_too_large_or_too_deep_is_refused(write: Write) -> None:
    assert "too many" in refusal(write("#" * 1_000_001)).problem
    assert "nested too deeply" in refusal(write("root: " + "[" * 50_000)).problem


def test_file_of_aliases_does_not_grow_in_memory(write: Write) -> None:
    layers = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
    with pytest.raises(Invalid, match="there is no key 'a0'"):
        load_settings(write("a0: &a0 x\n" + layers))


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: raw.decode("latin-1")))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_loaded_or_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "any.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with contextlib.suppress(Invalid):
        load_settings(path)
