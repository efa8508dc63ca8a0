//! Permissions under any umask. The umask belongs to the process, so there is one test here.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    reason = "all of this is test code; the exemption in clippy.toml covers test functions only"
)]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::Mode;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn files_and_directories_are_private_whatever_the_umask() {
    for umask in [0o022, 0o000, 0o077] {
        rustix::process::umask(Mode::from_bits_truncate(umask));
        let root = tempfile::tempdir().unwrap();
        let shared = root.path().join("shared");
        fs::create_dir(&shared).unwrap();
        set_mode(&shared, 0o755);

        let dir = shared.join("a/b");
        muster_privatefiles::create_dir_all(&dir).unwrap();
        assert_eq!((mode(&shared.join("a")), mode(&dir)), (0o700, 0o700));
        assert_eq!(mode(&shared), 0o755, "not ours");

        let file = shared.join("logs/events");
        muster_privatefiles::create_parents(&file).unwrap();
        let mut options = OpenOptions::new();
        drop(muster_privatefiles::open(&file, options.create(true).append(true)).unwrap());
        assert_eq!((mode(&shared.join("logs")), mode(&file)), (0o700, 0o600));

        // What an earlier version has left is narrowed, and keeps what is its owner's.
        set_mode(&dir, 0o2775);
        set_mode(&file, 0o444);
        muster_privatefiles::create_dir_all(&dir).unwrap();
        muster_privatefiles::narrow(&file).unwrap();
        assert_eq!((mode(&dir), mode(&file)), (0o2700, 0o400));

        // A directory for everybody is left alone, whoever runs this.
        set_mode(&shared, 0o1777);
        muster_privatefiles::create_dir_all(&shared).unwrap();
        assert_eq!(mode(&shared), 0o1777);

        assert!(muster_privatefiles::narrow(&shared.join("none")).is_err());
    }
}
