//! Files and directories that only their owner can read, whatever the umask.
//!
//! Whatever may hold a Secret is written here: databases, keys, logs of events, clones of
//! repositories. What is there already with wider permissions is narrowed, and a line in the log says
//! so. On systems without Unix permissions this does what the standard library does.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

/// Permissions of the group and of everybody.
#[cfg(unix)]
const OTHERS: u32 = 0o077;

/// Creates a directory and those above it that are missing, all for their owner only. One that is
/// there is narrowed; those above it are left alone.
///
/// # Errors
///
/// As [`fs::create_dir_all`].
pub fn create_dir_all(dir: &Path) -> io::Result<()> {
    create_missing(dir)?;
    narrow(dir)
}

/// Creates the directories above a file that are missing, for their owner only, and leaves those
/// alone that are there: they may be shared, as `/var/log` is.
///
/// # Errors
///
/// As [`fs::create_dir_all`].
pub fn create_parents(file: &Path) -> io::Result<()> {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => create_missing(parent),
        _ => Ok(()),
    }
}

fn create_missing(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// Opens a file as `options` say, for its owner only if it is created. One that is there is
/// narrowed.
///
/// # Errors
///
/// As [`OpenOptions::open`].
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    let file = options.open(path)?;
    narrow(path)?;
    Ok(file)
}

/// Takes the permissions of others from a file or directory. If that is not allowed, or the
/// directory is meant to be shared, a line in the log says so and nothing changes.
///
/// # Errors
///
/// It is not there, or cannot be looked at.
#[cfg(unix)]
pub fn narrow(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;

    /// Set on directories in which everybody may write, such as `/tmp`.
    const STICKY: u32 = 0o1000;

    let found = fs::metadata(path)?;
    let mode = found.permissions().mode() & 0o7777;
    if mode & OTHERS == 0 {
        return Ok(());
    }
    let shown = path.display();
    let mode_before = format!("{mode:04o}");
    if found.is_dir() && mode & STICKY != 0 {
        tracing::warn!(path = %shown, mode = mode_before, "directory is shared with others");
        return Ok(());
    }
    let private = fs::Permissions::from_mode(mode & !OTHERS);
    match fs::set_permissions(path, private) {
        Ok(()) => {
            tracing::warn!(path = %shown, mode = mode_before, "others had access, removed it");
        }
        Err(error) => {
            tracing::warn!(
                path = %shown, mode = mode_before, %error,
                "others have access, failed to remove it"
            );
        }
    }
    Ok(())
}

/// There are no such permissions here.
///
/// # Errors
///
/// It is not there, or cannot be looked at.
#[cfg(not(unix))]
pub fn narrow(path: &Path) -> io::Result<()> {
    fs::metadata(path).map(|_| ())
}
