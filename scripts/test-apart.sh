#!/usr/bin/env bash
# Vets and tests the modules beside the workspace that are named. Those that need other people's servers are only vetted:
# make interop runs them.
set -euo pipefail
export GOWORK=off
go=${GO:-go}
for module in "$@"; do
	echo "== module $module"
	(
		case $module in deploy/*) export GOFLAGS= ;; esac # nothing there runs at once, and its libraries are large
		cd "$module"
		"$go" vet ./...
		case $module in cmd/interop*) ;; *) "$go" test -vet=off -count=1 ./... ;; esac
	)
done
