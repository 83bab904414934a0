"""Quantities with units, and what is no quantity."""

import pytest

from jaxoracle.errors import OracleError
from jaxoracle.units import number, parse, show


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("12.5 GB/s", "bandwidth", 12.5e9),
        ("12.5GB/s", "bandwidth", 12.5e9),
        ("100 Gbit/s", "bandwidth", 12.5e9),
        ("100 Gb/s", "bandwidth", 12.5e9),
        ("100 Gbps", "bandwidth", 12.5e9),
        ("1 GiB/s", "bandwidth", 2.0**30),
        ("600 GB/s bidirectional", "bandwidth", 300e9),
        ("300 GB/s per direction", "bandwidth", 300e9),
        ("9 us", "time", 9e-6),
        ("9 µs", "time", 9e-6),
        ("9 μs", "time", 9e-6),
        ("3.1 ms", "time", 3.1e-3),
        ("2e-6 s", "time", 2e-6),
        ("16 GB", "memory", 16e9),
        ("16 GiB", "memory", 16 * 2.0**30),
        ("15.7 TFLOP/s", "compute", 15.7e12),
        ("15.7 TFLOPS", "compute", 15.7e12),
        ("3.6 USD/hour", "price", 1e-3),
    ],
)
def test_a_quantity_is_read_in_si(text, kind, value):
    assert parse(text, kind, "here") == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("5 us", "time", 5e-6),
        ("40.31 us", "time", 40.31e-6),
        ("900 ns", "time", 9e-7),
        ("12.5 GB/s", "bandwidth", 12.5e9),
    ],
)
def test_a_quantity_is_the_nearest_float_so_that_it_can_be_selected(text, kind, value):
    assert parse(text, kind, "here") == value


@pytest.mark.parametrize(
    ("text", "kind", "word"),
    [
        ("12.5", "bandwidth", "unit is missing"),
        (12.5, "bandwidth", "Write the unit"),
        (12, "time", "Write the unit"),
        (True, "time", "Write the unit"),
        (None, "memory", "Write the unit"),
        (["9 us"], "time", "Write the unit"),
        ("12.5 GB", "bandwidth", "no bandwidth"),
        ("12.5 GB/s", "memory", "no memory"),
        ("9 parsec", "time", "no time"),
        ("16 gb", "memory", "no memory"),
        ("nan us", "time", "finite"),
        ("inf us", "time", "finite"),
        ("1e400 s", "time", "finite"),
        ("fast", "bandwidth", "must be a quantity"),
        ("1e-300 s", "time", "between"),
        ("1e200 GB/s", "bandwidth", "between"),
        ("1 " + 60_000 * " " + "GB/s", "bandwidth", "60006 characters"),
        ("", "time", "must be a quantity"),
        ("16 GB bidirectional", "memory", "no memory"),
        ("1,5 GB/s", "bandwidth", "no bandwidth"),
    ],
)
def test_what_is_no_quantity_is_an_error_that_names_the_place_and_an_example(text, kind, word):
    with pytest.raises(OracleError, match=word) as caught:
        parse(text, kind, "x.toml: bandwidth")
    assert str(caught.value).startswith("x.toml: bandwidth")


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "3", None, [1]])
def test_a_number_must_be_finite_and_positive(value):
    with pytest.raises(OracleError, match="here must be"):
        number(value, "here")


def test_a_whole_number_must_be_whole():
    assert number(3.0, "here", whole=True) == 3
    with pytest.raises(OracleError, match="whole"):
        number(3.5, "here", whole=True)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.6e10, "B", "16 GB"),
        (9e-6, "s", "9 us"),
        (0.0, "s", "0 s"),
        (3600.0, "s", "3600 s"),
        (2.5e-10, "s", "0.25 ns"),
    ],
)
def test_numbers_are_shown_with_a_unit(value, unit, text):
    assert show(value, unit) == text
