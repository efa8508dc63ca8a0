//! Who writes to which branch and folder in this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::branch::{Branch, Shared, error};
use crate::config::{Config, Credentials};
use crate::error::{GitError, GitErrorKind, Result};
use crate::location::Location;
use crate::path::FilePath;

/// Hands out the writers of a process. Those of one branch share what is kept of it and take
/// turns, so that they do not get in each other's way; a folder has one writer only.
///
/// What a branch takes is given back with its last writer.
#[derive(Clone, Debug, Default)]
pub struct Branches {
    lines: Arc<Mutex<HashMap<Key, Line>>>,
}

/// The repository and the branch.
type Key = (String, String);

/// The writers of one branch.
struct Line {
    shared: Arc<Mutex<Shared>>,
    /// The repository, whether or not it was written with `.git`.
    loose_key: String,
    /// Each writer's folder.
    bases: Vec<Option<FilePath>>,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line")
            .field("bases", &self.bases)
            .finish_non_exhaustive()
    }
}

impl Branches {
    /// Opens a writer. Does not look at the remote yet.
    ///
    /// # Errors
    ///
    /// A setting or the working folder cannot be used, or a writer exists whose base folder is the
    /// same, contains this one, or lies in it.
    pub fn open(&self, config: Config) -> Result<Branch, GitError> {
        match self.claim(&config) {
            Ok((location, shared, claim)) => {
                let vanished = lock(&shared).vanished;
                Ok(Branch::new(config, location, shared, vanished, claim))
            }
            Err(kind) => Err(error(&config, kind)),
        }
    }

    /// On how many branches there are writers.
    pub fn count(&self) -> usize {
        lock(&self.lines).len()
    }

    fn claim(&self, config: &Config) -> Result<(Location, Arc<Mutex<Shared>>, Claim)> {
        config.check()?;
        let location = Location::parse(&config.url)?;
        if config.credentials != Credentials::None && !location.takes_credentials() {
            return Err(GitErrorKind::Setting {
                field: "credentials",
                reason: "only http and https know any".to_owned(),
            });
        }
        let loose_key = location.loose_key();
        let key = (location.key(), config.branch.clone());
        let mut lines = lock(&self.lines);
        let taken = lines
            .iter()
            .filter(|((_, branch), line)| *branch == key.1 && line.loose_key == loose_key)
            .flat_map(|(_, line)| &line.bases)
            .find(|other| overlap(config.base.as_ref(), other.as_ref()));
        if let Some(other) = taken {
            let shown = |base: &Option<FilePath>| {
                base.as_ref().map(FilePath::to_string).unwrap_or_default()
            };
            return Err(GitErrorKind::Overlap {
                base: shown(&config.base),
                other: shown(other),
            });
        }
        let shared = if let Some(line) = lines.get_mut(&key) {
            line.bases.push(config.base.clone());
            lock(&line.shared).was_there |= config.was_there;
            line.shared.clone()
        } else {
            let shared = Arc::new(Mutex::new(Shared::open(config, &location)?));
            let line = Line {
                shared: shared.clone(),
                loose_key,
                bases: vec![config.base.clone()],
            };
            lines.insert(key.clone(), line);
            shared
        };
        drop(lines);
        let claim = Claim {
            branches: self.clone(),
            key,
            base: config.base.clone(),
        };
        Ok((location, shared, claim))
    }
}

fn overlap(one: Option<&FilePath>, other: Option<&FilePath>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.contains(other) || other.contains(one),
        _ => true,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Holds a folder of a branch for one writer.
pub(crate) struct Claim {
    branches: Branches,
    key: Key,
    base: Option<FilePath>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut lines = lock(&self.branches.lines);
        if let Some(line) = lines.get_mut(&self.key) {
            line.bases.retain(|base| *base != self.base);
            if line.bases.is_empty() {
                // Under the lock, so that who opens the branch next finds the store free.
                lines.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bench {
        folder: tempfile::TempDir,
        branches: Branches,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                folder: tempfile::tempdir().unwrap(),
                branches: Branches::default(),
            }
        }

        fn open(&self, url: &str, branch: &str, base: &str) -> Result<Branch, GitError> {
            let mut config = Config::new(url, branch, self.folder.path().to_owned());
            config.base = (!base.is_empty()).then(|| FilePath::new(base).unwrap());
            self.branches.open(config)
        }
    }

    const URL: &str = "https://host/a.git";

    #[test]
    fn writers_of_one_branch_share_and_leave_one_by_one() {
        let bench = Bench::new();
        let a = bench.open(URL, "main", "a").unwrap();
        let b = bench.open("https://HOST:443/a.git/", "main", "b").unwrap();
        assert_eq!(bench.branches.count(), 1);
        let other = bench.open(URL, "other", "a").unwrap();
        assert_eq!(bench.branches.count(), 2);
        drop(a);
        assert_eq!(bench.branches.count(), 2);
        // Its folder is free again, and the other writer has kept its own.
        let a = bench.open(URL, "main", "a").unwrap();
        assert!(bench.open(URL, "main", "b").is_err());
        drop((a, b));
        assert_eq!(bench.branches.count(), 1);
        drop(other);
        assert_eq!(bench.branches.count(), 0);
        bench.open(URL, "main", "").unwrap();
    }

    #[test]
    fn folders_that_contain_each_other_are_refused() {
        let bench = Bench::new();
        let _a = bench.open(URL, "main", "a/b").unwrap();
        for base in ["a/b", "a", "a/b/c", ""] {
            let error = bench.open(URL, "main", base).expect_err(base);
            assert!(
                matches!(error.kind, GitErrorKind::Overlap { .. }),
                "{error}"
            );
            let text = error.to_string();
            assert!(
                text.contains(URL) && text.contains("main") && text.contains("a/b"),
                "{text}"
            );
        }
        // The same repository with nearly every server.
        assert!(bench.open("https://host/a", "main", "a").is_err());
        let _sibling = bench.open(URL, "main", "a/bc").unwrap();
        let _elsewhere = bench.open("https://host/b", "main", "a").unwrap();
    }

    #[test]
    fn a_refused_writer_leaves_nothing_behind() {
        let bench = Bench::new();
        assert!(bench.open("ssh://host/a", "main", "a").is_err());
        assert!(bench.open(URL, "a..b", "a").is_err());
        for url in ["git://host/a", "/srv/a"] {
            let mut config = Config::new(url, "main", bench.folder.path().to_owned());
            config.credentials = Credentials::Basic {
                user: "ann".to_owned(),
                password: "secret".to_owned(),
            };
            let text = bench.branches.open(config).unwrap_err().to_string();
            assert!(text.contains("credentials cannot be used"), "{text}");
        }
        assert_eq!(bench.branches.count(), 0);
        let file = bench.folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = bench
            .branches
            .open(Config::new(URL, "main", file))
            .unwrap_err();
        assert!(matches!(error.kind, GitErrorKind::Folder { .. }), "{error}");
        assert_eq!(bench.branches.count(), 0);
    }

    #[test]
    fn another_process_keeps_its_folder() {
        let bench = Bench::new();
        let _a = bench.open(URL, "main", "a").unwrap();
        let config = Config::new(URL, "main", bench.folder.path().to_owned());
        // A registry of its own stands for another process.
        let error = Branch::open(config).unwrap_err();
        assert!(
            matches!(error.kind, GitErrorKind::FolderInUse { .. }),
            "{error}"
        );
    }
}
