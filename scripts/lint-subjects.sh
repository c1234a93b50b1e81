#!/usr/bin/env bash
# Checks the subjects of the commits since the one that added this script: `area: what changes`, at most 72 characters,
# no full stop. Without git, or in a shallow clone without that commit, there is nothing to check.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
added=$(git log --diff-filter=A --format=%H -- scripts/lint-subjects.sh 2>/dev/null | tail -n 1)
[ -n "$added" ] || exit 0
git log --no-merges --format='%h %s' "$added..HEAD" | awk '
	{
		commit = $1
		subject = substr($0, length(commit) + 2)
		if (length(subject) > 72) wrong = length(subject) " characters, at most 72"
		else if (subject !~ /^[^ :][^:]*: [^ ]/) wrong = "no area: write `area: what changes`"
		else if (subject ~ /\.$/) wrong = "ends with a full stop"
		else next
		printf "commit %s: %s: %s\n", commit, wrong, subject
		failed = 1
	}
	END { if (failed) { print "to fix: git rebase -i, reword"; exit 1 } }'
