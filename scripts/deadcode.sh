#!/bin/sh
# Fails on functions that nothing calls, and on those of internal packages that only their own tests call.
#
# It looks twice. All programs and all tests call what is in use, helpers of tests included. What the tests of internal
# packages alone call is found without them: what public packages export is in use there, because their tests call it.
# doctest is among those because it tests other packages, and reads what they keep for it.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

echo "== functions that nothing calls"
"$DEADCODE" -test work >"$tmp/all"
"$DEADCODE" -test $("$go" list work | grep -v /internal/) ./cmd/internal/doctest >"$tmp/apart"
# Examples without output are compiled and not called.
{ cat "$tmp/all"; grep -v /testenv/ "$tmp/apart" || true; } | grep -v '/example[a-z_]*_test\.go:' | sort -u >"$tmp/found" || true
if [ -s "$tmp/found" ]; then
  cat "$tmp/found"
  echo "remove them, or move what only a test needs into the test"
  exit 1
fi
