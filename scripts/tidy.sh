#!/bin/sh
# Tidies every go.mod. With -diff it changes nothing, prints the changes, and fails if there are any.
#
# Modules of the workspace may require unpublished versions of each other, and go mod tidy ignores the workspace. So it runs on a
# copy of go.mod in which the other modules are replaced by their folders.
set -eu
cd "$(dirname "$0")/.."
export GOWORK=off
go=${GO:-go}
ours=github.com/sluiceproject/sluice
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

workspace=$(sed -n 's|^[[:space:]]*\./||p' go.work) # except the root
replace="-replace=$ours=$PWD"
drop="-dropreplace=$ours"
for m in $workspace; do
  replace="$replace -replace=$ours/$m=$PWD/$m"
  drop="$drop -dropreplace=$ours/$m"
done

stale=0
for m in . $workspace; do
  echo "== tidy $m"
  cp "$m/go.mod" "$m/go.sum" "$tmp"
  "$go" mod edit $replace "$tmp/go.mod"
  (cd "$m" && "$go" mod tidy -modfile="$tmp/go.mod")
  "$go" mod edit $drop "$tmp/go.mod"
  for f in go.mod go.sum; do
    if [ "${1:-}" = -diff ]; then
      diff -u "$m/$f" "$tmp/$f" || stale=1
    else
      cp "$tmp/$f" "$m/$f"
    fi
  done
done

# The other modules have replace directives themselves.
for mod in $(find . -mindepth 2 -name go.mod -not -path '*/.*' -not -path '*/testdata/*'); do
  m=${mod#./}
  m=${m%/go.mod}
  if echo "$workspace" | grep -qx "$m"; then continue; fi
  echo "== tidy $m"
  (cd "$m" && "$go" mod tidy ${1:-}) || stale=1
done
exit $stale
