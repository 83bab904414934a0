"""`python -m jaxoracle`."""

from jaxoracle.cli import main

main(prog_name="jaxoracle")
