#!/bin/sh
# release.sh VERSION NEXT: commits and tags release VERSION, and then makes the modules require NEXT of each other. It pushes only
# to a repository in a temporary folder, from which it installs the program as users will.
set -eu
cd "$(dirname "$0")/.."
version=$1
next=$2
go=${GO:-go}
ours=github.com/sluiceproject/sluice
if [ -n "$(git status --porcelain)" ]; then
  echo "there are uncommitted changes" >&2
  exit 1
fi

tmp=$(mktemp -d)
trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT
git init -q --bare "$tmp/published"
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.$tmp/published.insteadOf" GIT_CONFIG_VALUE_0="https://$ours"
GOPROXY="file://$("$go" env GOMODCACHE)/cache/download,$("$go" env GOPROXY)"
export GOPROXY GOPRIVATE="$ours" GOMODCACHE="$tmp/cache" GOBIN="$tmp/bin"

# publish TAG…: tags the commit.
publish() {
  for tag; do git tag "$tag"; done
  git push -q "$tmp/published" HEAD:refs/heads/main "$@"
}

# ask VERSION FOLDER…: makes modules require this version of the other modules.
ask() {
  wanted=$1
  shift
  for m; do
    for path in $(sed -n "s|^.*\($ours[^ ]*\) v.*|\1|p" "$m/go.mod"); do
      "$go" mod edit -require="$path@$wanted" "$m/go.mod"
    done
  done
}

# release FOLDER…: publishes modules whose requirements are published.
release() {
  ask "$version" "$@"
  for m; do (cd "$m" && GOWORK=off "$go" mod tidy); done
  git commit -qam "release: $* $version"
  publish $(for m; do echo "$m/$version"; done)
}

publish "$version"
release grpclimit redisstore/goredis
release cmd
(cd "$tmp" && "$go" install "$ours/cmd/sluice@$version")
"$tmp/bin/sluice" version | grep -F "sluice $version "

ask "$next" cmd examples grpclimit redisstore/goredis
sed -i "s| v[^ ]* => | $next => |" go.work
GO=$go scripts/tidy.sh
git commit -qam "release: $next is next"
echo "to release it: git push origin HEAD --tags"
