#!/bin/sh
# Installs the Debian packages that the tests need and this machine lacks.
# Says nothing, and does not touch apt, when everything is there. Without root
# or apt-get it names what is missing; that is an error only when CI=true.
set -eu

missing=''
need() { missing="$missing $1"; }

have() { command -v "$1" >/dev/null 2>&1; }

has_ca_bundle() {
  for f in /etc/ssl/certs/ca-certificates.crt /etc/ssl/cert.pem \
    /etc/pki/tls/certs/ca-bundle.crt; do
    if [ -s "$f" ]; then return 0; fi
  done
  return 1
}

# The race detector needs cgo: a C compiler and the C library's headers.
has_c_headers() { echo '#include <stdlib.h>' | gcc -E - >/dev/null 2>&1; }

have curl || need curl
has_ca_bundle || need ca-certificates
have gcc || need gcc
have redis-server || need redis-server
have memcached || need memcached
has_c_headers || need libc6-dev

[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ] && have apt-get; then
  echo "installing what the tests need:$missing" >&2
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  # shellcheck disable=SC2086 # a list of package names
  apt-get install -y -qq --no-install-recommends $missing
  exit 0
fi

echo "missing for the tests (Debian package names):$missing" >&2
if [ "${CI:-}" = true ]; then exit 1; fi
