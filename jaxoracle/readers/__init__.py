"""Networks from outside: one module a format, each returns a `Builder`."""
