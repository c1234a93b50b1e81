#!/usr/bin/env bash
# Vets and tests the named modules outside of the workspace. Modules that need servers of other projects are only vetted:
# make interop tests them.
set -euo pipefail
export GOWORK=off
go=${GO:-go}
for module in "$@"; do
	echo "== module $module"
	(
		# No race detector: nothing there is concurrent, and its libraries are large. The other flags share the standard library
		# with the linters.
		case $module in deploy/*) export GOFLAGS=${GOFLAGS//-race/} ;; esac
		cd "$module"
		GOGC=400 "$go" vet ./...
		case $module in cmd/interop*) ;; *) "$go" test -vet=off -count=1 ./... ;; esac
	)
done
