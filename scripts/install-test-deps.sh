#!/bin/sh
# Installs missing Debian packages that the tests need.
# Prints nothing, and does not run apt, if nothing is missing. Without root
# or apt-get it prints the missing packages; that is an error only with CI=true.
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
have ip || need iproute2
have unshare || need util-linux
has_c_headers || need libc6-dev

# Temporary files, removed at exit.
made=''
trap 'rm -f $made' EXIT

can_install() { [ "$(id -u)" -eq 0 ] && have apt-get; }

# The tests start servers themselves. Servers started by the packages would use ports, and if port 80 is in use, installing
# nginx fails because it starts it.
quiet_install() {
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    made="$made $policy"
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

# Some releases of Debian have Valkey only in their backports, on the mirror that
# apt uses. If it is not available, its tests are skipped.
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
  echo "installing packages for the tests: valkey-server" >&2
  install_valkey >&2 || echo "Valkey is not available: its tests are skipped" >&2
fi

[ -n "$missing" ] || exit 0

if can_install; then
  echo "installing packages for the tests:$missing" >&2
  apt-get update -qq
  # shellcheck disable=SC2086 # a list of package names
  quiet_install $missing
  exit 0
fi

echo "missing for the tests (Debian package names):$missing" >&2
if [ "${CI:-}" = true ]; then exit 1; fi
