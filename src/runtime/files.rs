//! Files whose change ends the process, so that it starts again with what they hold.
//!
//! Kubeconfigs and the certificates beside them are replaced while a process runs (a secret that is
//! rotated); clients read them once.

use std::time::Duration;

/// How often files are read: as often as upstream does.
const INTERVAL: Duration = Duration::from_secs(10);

/// Reads files now; the returned future gives the name of the first that then has another content,
/// appears or is gone.
pub fn change_of(files: &[String]) -> impl Future<Output = String> + use<> {
    change_within(files, INTERVAL)
}

fn change_within(files: &[String], interval: Duration) -> impl Future<Output = String> + use<> {
    let read = |name: &String| (name.clone(), std::fs::read(name).ok());
    let before: Vec<_> = files.iter().map(read).collect();
    async move {
        if before.is_empty() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(interval).await;
            for (name, content) in &before {
                if tokio::fs::read(name).await.ok() != *content {
                    return name.clone();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(5);

    #[tokio::test]
    async fn a_change_an_appearance_and_an_end_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let files = [path("a"), path("b")];
        std::fs::write(&files[0], "1").unwrap();
        let changed = change_within(&files, INTERVAL);
        std::fs::write(&files[0], "1").unwrap(); // the same again is no change
        std::fs::write(&files[1], "2").unwrap();
        assert_eq!(changed.await, files[1]);

        let changed = change_within(&files, INTERVAL);
        std::fs::write(&files[0], "3").unwrap();
        assert_eq!(changed.await, files[0]);

        let changed = change_within(&files, INTERVAL);
        std::fs::remove_file(&files[1]).unwrap();
        assert_eq!(changed.await, files[1]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_files_never_change() {
        let waited = tokio::time::timeout(Duration::from_secs(100), change_of(&[])).await;
        assert!(waited.is_err());
    }
}
