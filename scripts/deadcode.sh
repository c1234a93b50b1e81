#!/bin/sh
# Fails on functions that are never called, and on functions of internal packages that only their own tests call.
#
# It runs two analyses. The first starts from all programs and all tests, so that test helpers count as used. The second omits
# the tests of internal packages, to find functions that only these call; exported functions of public packages count as used,
# because the tests of these packages call them. doctest is included because it tests other packages and uses their test hooks.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

echo "== functions that are never called"
"$DEADCODE" -test work >"$tmp/all"
"$DEADCODE" -test $("$go" list work | grep -v /internal/) ./cmd/internal/doctest >"$tmp/apart"
# Examples without output are compiled but not called.
{ cat "$tmp/all"; grep -v /testenv/ "$tmp/apart" || true; } | grep -v '/example[a-z_]*_test\.go:' | sort -u >"$tmp/found" || true
if [ -s "$tmp/found" ]; then
  cat "$tmp/found"
  echo "remove them, or move them into the test that needs them"
  exit 1
fi
