//! Lines that are typed: a command that has to succeed, and what it prints.

use std::process::Stdio;

use anyhow::{Result, ensure};
use tokio::process::Command;

/// Runs a command without input to its end; gives what it prints. `line` is what a failure says was
/// typed.
pub(crate) async fn typed(command: &mut Command, line: &str) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    let stdout = String::from_utf8(output.stdout)?;
    ensure!(
        output.status.success(),
        "{line}\nended with {:?}\n{stdout}{}",
        output.status.code(),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(stdout)
}
