"""Dates and times in file names."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from earmark.errors import DataError
from earmark.formats.start_times import start_time, start_times

START = datetime(2024, 5, 17, 4, 30, 15)


@pytest.mark.parametrize(
    "name",
    [
        "20240517_043015.WAV",
        "20240517_043015T.WAV",
        "SM4_20240517_043015.wav",
        "S4A12345_20240517_043015_0+1.wav",
        "20240517T043015.flac",
        "20240517043015.wav",
        "2024-05-17T04-30-15.wav",
        "2024-05-17 04:30:15.wav",
        "2024-05-17_04-30-15_mic2.wav",
        "2024_05_17_04_30_15.wav",
        "2024.05.17-04.30.15.wav",
        "19990101_000000/rec_20240517_043015.wav",
        "99991399_999999_20240517_043015.wav",
    ],
)
def test_a_start_without_a_zone_is_that_of_the_clock(name):
    assert start_time(name) == START


@pytest.mark.parametrize(
    ("name", "zone"),
    [
        ("20240517_043015Z.wav", UTC),
        ("2024-05-17T04-30-15Z.flac", UTC),
        ("20240517T043015+0200.wav", timezone(timedelta(hours=2))),
        ("2024-05-17T04:30:15-09:30.wav", timezone(-timedelta(hours=9, minutes=30))),
    ],
)
def test_a_zone_is_kept(name, zone):
    assert start_time(name) == START.replace(tzinfo=zone)


def test_a_fraction_of_a_second_is_kept():
    assert start_time("20240517_043015.250.wav") == START.replace(microsecond=250_000)


@pytest.mark.parametrize(
    "name",
    [
        "street.wav",
        "20240517.wav",
        "20241317_043015.wav",
        "20240517_253015.wav",
        "120240517_0430151.wav",
        "-5QrBL6MzLg_60.000_70.000.wav",
        "20240517_043015/street.wav",
        "20240517_043015+9999.wav",
    ],
)
def test_a_name_without_a_date_and_time_has_no_start(name):
    assert start_time(name) is None


def test_names_without_any_start_are_refused():
    assert start_times(["20240517_043015.wav", "b.wav"]) == {"20240517_043015.wav": START}
    assert start_times([]) == {}
    with pytest.raises(DataError, match=r"No recording has its start in its name.*'b\.wav'"):
        start_times(["b.wav"])
