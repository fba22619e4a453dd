"""Settings: arguments win over the environment, the environment over pyproject.toml."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dumbwaiter.errors import ConfigurationError
from dumbwaiter.settings import Settings, duration


def test_the_defaults_are_those_of_the_promises(tmp_path):
    settings = Settings.load({}, {}, tmp_path)

    assert (settings.lease, settings.heartbeat, settings.sweep) == tuple(
        timedelta(seconds=s) for s in (20, 4, 5)
    )
    assert (settings.env, settings.origins) == ("development", {})


def test_arguments_win_over_the_environment_and_that_over_the_project(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[tool.dumbwaiter]\nlease = "40s"\npoll = 3\ntable-prefix = "p_"\n'
    )
    environ = {"DUMBWAITER_LEASE": "50", "DUMBWAITER_POLL": "4"}

    settings = Settings.load({"lease": "60s", "files": None}, environ, tmp_path)

    assert (settings.lease.total_seconds(), settings.poll.total_seconds(), settings.table_prefix) == (
        60,
        4,
        "p_",
    )
    assert settings.origins == {
        "lease": "argument",
        "poll": "environment variable DUMBWAITER_POLL",
        "table_prefix": str(tmp_path / "pyproject.toml"),
    }


def test_the_environment_is_named_by_ours_before_the_applications(tmp_path):
    assert Settings.load({}, {"APP_ENV": "staging"}, tmp_path).env == "staging"
    assert Settings.load({}, {"APP_ENV": "staging", "DUMBWAITER_ENV": "test"}, tmp_path).env == "test"


def test_the_nearest_project_file_above_counts(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.dumbwaiter]\nenv = "above"\n')
    (tmp_path / "a" / "b").mkdir(parents=True)

    assert Settings.load({}, {}, tmp_path / "a" / "b").env == "above"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20", 20),
        ("20s", 20),
        ("1.5h", 5400),
        ("250ms", 0.25),
        (" 5 m ", 300),
        ("1d", 86_400),
        (7, 7),
        (0.5, 0.5),
    ],
)
def test_a_duration_is_seconds_or_a_number_with_its_unit(text, seconds):
    assert duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "soon", "5 years", "-5", True, "1e3", "٣"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="is not a duration"):
        duration(text)


@pytest.mark.parametrize(
    ("given", "environ", "said"),
    [
        ({"colour": "red"}, {}, "there is no setting 'colour'"),
        ({}, {"DUMBWAITER_SLOTS": "many"}, "DUMBWAITER_SLOTS"),
        ({}, {"DUMBWAITER_PGBOUNCER": "perhaps"}, "neither true nor false"),
        ({"lease": "10s", "heartbeat": "4s"}, {}, "at most a third of the lease"),
        ({"poll": 0}, {}, "poll must be more"),
        ({"table_prefix": "Dumb-"}, {}, "table_prefix"),
        ({"table_prefix": "x" * 32}, {}, "table_prefix"),
        ({"schema": "a b"}, {}, "not a plain identifier"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(tmp_path, given, environ, said):
    with pytest.raises(ConfigurationError, match=said):
        Settings.load(given, environ, tmp_path)


@pytest.mark.parametrize("said", [None, "never", " Never "])
def test_what_is_kept_for_ever_is_said_by_none_or_never(tmp_path, said):
    assert Settings.load({"file_expiry": said}, {}, tmp_path).file_expiry is None
    assert Settings.load({}, {"DUMBWAITER_FILE_EXPIRY": "2d"}, tmp_path).file_expiry == timedelta(days=2)


@pytest.mark.parametrize("said", [0, "40000d"])
def test_nothing_is_kept_for_no_time_or_for_longer_than_a_date_can_tell(tmp_path, said):
    with pytest.raises(ConfigurationError, match=r"file_expiry must be more than nothing .* or never"):
        Settings.load({"file_expiry": said}, {}, tmp_path)


def test_a_project_file_that_is_no_toml_is_named(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool")

    with pytest.raises(ConfigurationError, match=r"pyproject\.toml is not TOML"):
        Settings.load({}, {}, tmp_path)


def test_an_empty_variable_counts_as_not_set(tmp_path):
    assert Settings.load({}, {"DUMBWAITER_LEASE": ""}, tmp_path).lease == timedelta(seconds=20)


def test_files_and_work_directories_stand_beside_the_sqlite_file(tmp_path):
    settings = Settings.load({"database": f"sqlite:///{tmp_path}/x/tasks.db?timeout=5"}, {}, tmp_path)

    assert settings.home == tmp_path / "x"
    assert (settings.workdir_path, settings.files_url) == (
        tmp_path / "x" / "work",
        str(tmp_path / "x" / "files"),
    )


def test_the_secret_is_never_shown(tmp_path):
    assert "hush" not in repr(Settings.load({"secret": "hush"}, {}, tmp_path))
