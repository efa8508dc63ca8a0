//! Whether this machine lets a story have namespaces of its own.

use std::os::unix::fs::MetadataExt as _;
use std::process::Stdio;

use anyhow::Result;
use tokio::process::Command;

use super::own_process::CannotHere;

/// Fails where it does not.
///
/// # Errors
/// [`CannotHere`]: we are not root, or root of a container without privileges.
pub(crate) async fn can_be_made() -> Result<()> {
    if std::fs::metadata("/proc/self")?.uid() != 0 {
        return Err(CannotHere("this needs root").into());
    }
    let tried = Command::new("unshare")
        .args(["--mount", "--mount-proc", "--pid", "--fork", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .await;
    if !tried.is_ok_and(|status| status.success()) {
        return Err(CannotHere("no namespaces can be made here, as in a plain container").into());
    }
    Ok(())
}
