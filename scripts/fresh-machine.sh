#!/usr/bin/env bash
# Tries a clean clone on a machine that has only bash, git and python3: a Debian 12 made by debootstrap (as root).
#
#   scripts/fresh-machine.sh [--mirror URL] [--suite bookworm] [--root DIR] [--user NAME] [--with-changes] -- ./dev test
#   scripts/fresh-machine.sh --remove [--root DIR]
#
# The clone is of the last commit, `--with-changes` of the working tree as it is. The machine is kept in DIR for
# the next command; without one it is only made. Inside there is no locale, no /dev/shm, no certificate bundle,
# and no database server: those of this machine are not looked at. Where this machine reaches the network
# through settings of its own (proxies, certificates), they are handed on.
set -euo pipefail

root=/var/tmp/dumbwaiter-fresh-machine suite=bookworm mirror="" user=root commit=HEAD
source="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)"

main() {
  while [ $# -gt 0 ]; do
    case "$1" in
      --mirror) mirror="$2"; shift 2 ;;
      --suite) suite="$2"; shift 2 ;;
      --root) root="$2"; shift 2 ;;
      --user) user="$2"; shift 2 ;;
      --with-changes) commit=changes; shift ;;
      --remove) remove; return ;;
      --) shift; break ;;
      *) sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    esac
  done
  [ -f "$root/etc/debian_version" ] || make
  clone
  [ $# -gt 0 ] || return 0
  mounts
  inside "$@"
}

make() {
  [ -n "$mirror" ] || mirror="$(mirror_of_this_machine)"
  echo "fresh machine: debootstrap $suite into $root" >&2
  debootstrap --variant=minbase --include=git,python3 "$suite" "$root" "$mirror" >"$root.log" 2>&1 || { tail -n 5 "$root.log" >&2; exit 1; }
  # Nothing that apt installs may start a service of its own.
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
  chmod +x "$root/usr/sbin/policy-rc.d"
}

mirror_of_this_machine() {
  { grep -horE '[a-z]+://[^ ]+/(debian|ubuntu)/?( |$)' /etc/apt/sources.list* 2>/dev/null || true; } | tr -d ' ' | sort -u | head -n 1 |
    grep . || { echo "fresh machine: no mirror in /etc/apt; name one with --mirror" >&2; exit 1; }
}

# The network as this machine reaches it, and the last commit, in the home directory that only its owner may enter.
clone() {
  local variable file
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
  : >"$root/etc/fresh-machine.env"
  for variable in http_proxy https_proxy no_proxy SSL_CERT_FILE PIP_CERT PIP_DEFAULT_TIMEOUT UV_DEFAULT_INDEX; do
    [ -n "${!variable:-}" ] || continue
    file="${!variable}"
    if [ -f "$file" ]; then
      mkdir -p "$root/opt/handed-on"
      cp -L "$file" "$root/opt/handed-on/$variable"
      file="/opt/handed-on/$variable"
    fi
    printf '%s=%s\n' "$variable" "$file" >>"$root/etc/fresh-machine.env"
  done
  if [ "$user" != root ] && ! chroot "$root" id "$user" >/dev/null 2>&1; then
    chroot "$root" useradd --create-home --shell /bin/bash "$user"
  fi
  rm -rf "$root/tmp/clone.bundle"
  [ "$commit" = HEAD ] || commit="$(commit_of_changes)"
  git -C "$source" update-ref refs/heads/fresh-machine "$commit"
  git -C "$source" bundle create --quiet "$root/tmp/clone.bundle" fresh-machine
  git -C "$source" update-ref -d refs/heads/fresh-machine
  chmod a+r "$root/tmp/clone.bundle"
  as_user "cd && { [ -d dumbwaiter ] || git init --quiet dumbwaiter; } && cd dumbwaiter && git fetch --quiet /tmp/clone.bundle fresh-machine && git reset --quiet --hard FETCH_HEAD"
}

# A commit of everything that is not ignored, on no branch, made beside the index that people work with.
commit_of_changes() {
  local index
  index="$(mktemp)"
  cp "$(git -C "$source" rev-parse --path-format=absolute --git-path index)" "$index"
  (
    cd "$source"
    export GIT_INDEX_FILE="$index"
    git add --all
    git commit-tree -p HEAD -m "The working tree as it is" "$(git write-tree)"
  )
  rm -f "$index"
}

mounts() {
  mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
  rm -rf "$root/dev/shm" # debootstrap makes the devices, and this directory
  mountpoint -q "$root/dev/pts" && return
  mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$root/dev/pts"
  ln -sf pts/ptmx "$root/dev/ptmx"
}

inside() { as_user "cd ~/dumbwaiter && export DUMBWAITER_TEST_FRESH=1 && $(printf '%q ' "$@")"; }

as_user() {
  local words
  mapfile -t words <"$root/etc/fresh-machine.env"
  chroot --userspec="$user" "$root" /usr/bin/env -i \
    HOME="$(awk -F: -v user="$user" '$1 == user { print $6 }' "$root/etc/passwd")" USER="$user" TERM="${TERM:-dumb}" \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${words[@]}" bash -c "$1"
}

remove() {
  umount "$root/dev/pts" "$root/proc" 2>/dev/null || true
  if mountpoint -q "$root/proc" || mountpoint -q "$root/dev/pts"; then
    echo "fresh machine: $root is still in use; stop what runs there first" >&2
    exit 1
  fi
  rm -rf -- "$root" "$root.log"
}

main "$@"
