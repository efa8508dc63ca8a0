//! What can go wrong, by what the caller can do about it.

use std::path::PathBuf;

use crate::path::{FilePath, PathError};

/// A call on a branch failed. The remote has none of it, or all of it where the connection broke
/// while the answer was due; the next call looks at the remote anew and so knows.
#[derive(Debug, thiserror::Error)]
#[error("branch {branch} of {url}: {kind}")]
pub struct GitError {
    /// The repository as configured, without any credentials.
    pub url: String,
    /// The branch as configured.
    pub branch: String,
    /// What is wrong.
    #[source]
    pub kind: GitErrorKind,
}

impl GitError {
    /// Whether the same call may succeed later without anybody changing anything.
    pub const fn is_transient(&self) -> bool {
        matches!(
            self.kind,
            GitErrorKind::HostNotReachable { .. }
                | GitErrorKind::Broken { .. }
                | GitErrorKind::ServerError { .. }
                | GitErrorKind::UnknownCommits { .. }
                | GitErrorKind::BranchVanished
                | GitErrorKind::Folder { .. }
        )
    }
}

/// What is wrong.
#[derive(Debug, thiserror::Error)]
pub enum GitErrorKind {
    /// A setting cannot be used.
    #[error("{field} cannot be used: {reason}")]
    Setting {
        /// Which, as named in [`crate::Config`].
        field: &'static str,
        /// What is wrong with it; never with a password in it.
        reason: String,
    },
    /// A path is refused.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Another writer of this process has the folder, or one that contains it or lies in it.
    #[error("the base folder {base:?} overlaps with {other:?}, which another writer has")]
    Overlap {
        /// The folder asked for; empty for the whole repository.
        base: String,
        /// The folder that is taken.
        other: String,
    },
    /// The folder for the clone cannot be used.
    #[error("the working folder {path} cannot be used: {source}")]
    Folder {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another process, or another writer of this one, has the folder for the clone.
    #[error("the working folder {path} is in use by another writer")]
    FolderInUse {
        /// The folder.
        path: PathBuf,
    },
    /// No connection comes about.
    #[error("the host cannot be reached: {reason}")]
    HostNotReachable {
        /// Why.
        reason: String,
    },
    /// The connection ended or stalled within a conversation.
    #[error("the connection broke: {reason}")]
    Broken {
        /// Where and how.
        reason: String,
    },
    /// The server wants other credentials, or forbids it to these.
    #[error("authentication failed: {reason}")]
    AuthenticationFailed {
        /// What the server said.
        reason: String,
    },
    /// There is no repository, or it is not shown to these credentials.
    #[error("not a repository: {reason}")]
    NotARepository {
        /// What was found instead.
        reason: String,
    },
    /// The repository or server has something that is not supported.
    #[error("not supported: {what}")]
    Unsupported {
        /// What.
        what: String,
    },
    /// The server has a problem of its own.
    #[error("the server answered {status}")]
    ServerError {
        /// The status of HTTP.
        status: u16,
    },
    /// The server does not keep to Git's protocol.
    #[error("unexpected answer of the server: {reason}")]
    Protocol {
        /// Where and how.
        reason: String,
    },
    /// The repository, or what is kept of it in the working folder, lacks objects or has broken
    /// ones.
    #[error("damaged objects: {reason}")]
    Damaged {
        /// What is missing or broken.
        reason: String,
    },
    /// Something is larger than [`crate::Limits`] allow.
    #[error("{what} is larger than {limit} bytes")]
    TooLarge {
        /// What.
        what: &'static str,
        /// The limit, in bytes.
        limit: u64,
    },
    /// A file is to be written where the repository has something that is not a regular file, or
    /// below such a thing.
    #[error("{path} cannot be written: {by} is in the way")]
    Occupied {
        /// The path, with the base folder.
        path: FilePath,
        /// What is there.
        by: &'static str,
    },
    /// The branch is checked out in a repository with a work tree, which a push would put out of
    /// step.
    #[error(
        "the branch is checked out in this repository; use a bare one, or check out another there"
    )]
    CheckedOut,
    /// The branch was there at the last call and is not any more. Its files are gone with it, so
    /// that the caller has to bring all of them; the next call starts the branch anew.
    #[error("the branch vanished from the remote")]
    BranchVanished,
    /// The remote got commits of others while ours were on the way, at every try.
    #[error("the remote has unknown commits, at {tries} tries")]
    UnknownCommits {
        /// How often it was tried.
        tries: u32,
    },
    /// The server refuses the push, though the branch has not moved: a hook, a protected branch.
    #[error("the server refuses the push: {reason}")]
    Refused {
        /// What it said.
        reason: String,
    },
}

/// For modules that know neither url nor branch.
pub(crate) type Result<T, E = GitErrorKind> = std::result::Result<T, E>;
