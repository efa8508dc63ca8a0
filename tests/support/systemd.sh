#!/usr/bin/env bash
# systemd.sh SYSTEMD DIR [--net]: runs systemd as the first process of namespaces of its own, over a copy of this
# machine's root that is gone afterwards. What DIR/files holds lies in its root; DIR/root is where that
# is put together; DIR/outside gets the id of the process whose child it is. With --net it has a network
# of its own, which is nothing but loopback. Needs root. It ends, with all that it has started, when that
# process does.
set -euo pipefail

if [ "${3:-}" != inside ]; then
  # A cgroup, which gets to be the root of those inside, and is removed when nobody is left in it.
  cgroup=$(findmnt -n -t cgroup2 -o TARGET | head -n 1)/muster-test-$$
  mkdir "$cgroup"
  {
    tail --pid=$$ -f /dev/null
    for _ in {1..50}; do
      find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null && break
      sleep 0.1
    done
  } </dev/null >/dev/null 2>&1 &
  echo $$ >"$cgroup/cgroup.procs"
  echo $$ >"$2/outside"
  exec unshare --mount --propagation private --pid --fork --kill-child --uts --ipc --cgroup \
    ${3:+"$3"} bash "$0" "$1" "$2" inside
fi

systemd=$1 root=$2/root
mount -t tmpfs tmpfs "$root"
mkdir "$root"/{changed,work,root}
cp -a "$2/files/." "$root/changed/"
mount -t overlay overlay -o "lowerdir=/,upperdir=$root/changed,workdir=$root/work" "$root/root"
cd "$root/root"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount --rbind /dev dev
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp

# Nothing that belongs to the machine starts: no devices, no file systems, no services of packages.
rm -rf etc/systemd/system usr/lib/systemd/system/{sysinit,local-fs,sockets,timers,basic}.target.wants \
  usr/lib/systemd/system/systemd-journald-audit.socket
mkdir -p etc/systemd/{system,journald.conf.d}
printf '[Journal]\nAudit=no\nReadKMsg=no\n' >etc/systemd/journald.conf.d/test.conf
cat >etc/systemd/system/test.target <<'UNIT'
[Unit]
Description=What a story needs
Requires=systemd-journald.service
After=systemd-journald.service
UNIT

pivot_root . mnt
umount -l /mnt
# As on a machine: secrets of services are mounted by a process that lets systemd see the mount.
mount --make-rshared /
exec env -i container=muster-test "$systemd" --system --unit=test.target --show-status=no
