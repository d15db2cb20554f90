#!/bin/sh
# Makes configure and Makefile.in from configure.ac and Makefile.am.
set -e
cd "$(dirname "$0")"
mkdir -p build-aux
exec autoreconf -fi
