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
have prometheus || need prometheus
have nginx || need nginx
have chromium || need chromium
have haproxy || need haproxy
have systemd-analyze || need systemd
has_c_headers || need libc6-dev

# What is there only while this runs.
made=''
trap 'rm -f $made' EXIT

can_install() { [ "$(id -u)" -eq 0 ] && have apt-get; }

# The tests start servers themselves. Those of the packages would take ports, and where port 80 is taken an
# installation that starts nginx fails.
quiet_install() {
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    made="$made $policy"
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

# Valkey is younger than some releases of Debian, which have it in their
# backports, on the mirror that this machine uses. Where it cannot be had the
# tests on it are skipped.
install_valkey() {
  apt-get update -qq
  if apt-cache show valkey-server >/dev/null 2>&1; then
    quiet_install valkey-server
    return
  fi
  sources=/etc/apt/sources.list.d/debian.sources
  [ -f "$sources" ] || return 1
  suite="$(. /etc/os-release && echo "$VERSION_CODENAME")-backports"
  added=/etc/apt/sources.list.d/sluice-backports.sources
  made="$made $added"
  sed '/^$/,$d' "$sources" | sed "s/^Suites:.*/Suites: $suite/" >"$added"
  apt-get update -qq && quiet_install -t "$suite" valkey-server
}

if ! have valkey-server && can_install; then
  echo "installing what the tests need: valkey-server" >&2
  install_valkey >&2 || echo "there is no Valkey to be had here: the tests on it are skipped" >&2
fi

[ -n "$missing" ] || exit 0

if can_install; then
  echo "installing what the tests need:$missing" >&2
  apt-get update -qq
  # shellcheck disable=SC2086 # a list of package names
  quiet_install $missing
  exit 0
fi

echo "missing for the tests (Debian package names):$missing" >&2
if [ "${CI:-}" = true ]; then exit 1; fi
