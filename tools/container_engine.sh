#!/bin/bash
# A container engine and a base image for `make container-test`, where there is neither an engine nor an image registry.
#
# Uses what is there. Otherwise root gets podman with runc from the distribution's packages, and a base of its own
# packages: python3 and certificates.
set -euo pipefail

BASE=localhost/snavio-base

if command -v docker >/dev/null && docker info >/dev/null 2>&1; then
  exit 0
fi
if ! command -v podman >/dev/null || ! command -v runc >/dev/null || ! command -v mmdebstrap >/dev/null; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "The containers need podman and runc, or a running Docker: install one, then run make again." >&2
    exit 1
  fi
  echo "installing: podman, runc and mmdebstrap, which the containers are run and built with"
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends podman runc catatonit mmdebstrap >/dev/null
fi
if ! podman image exists "$BASE"; then
  echo "building: a base image of the distribution's python3"
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  mmdebstrap --quiet --variant=minbase --include=python3,ca-certificates \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' bookworm "$folder/base.tar"
  podman import --quiet "$folder/base.tar" "$BASE" >/dev/null
fi
