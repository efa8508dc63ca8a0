//! Where a branch is, who writes to it, and how much that may take.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{GitErrorKind, Result};
use crate::pace::{Pace, SystemPace};
use crate::path::FilePath;

/// One writer on one branch.
#[derive(Clone, Debug)]
pub struct Config {
    /// The repository: a path of this machine, or a URL with `file`, `git`, `http` or `https`.
    /// Credentials in it are refused.
    pub url: String,
    /// The branch, such as `main`. It is started from the default branch if there is none yet.
    pub branch: String,
    /// Whether it had files of this writer in an earlier life. If it is not there at the first look,
    /// then, it has vanished with them.
    pub was_there: bool,
    /// The folder that all paths are below; the whole repository if there is none.
    pub base: Option<FilePath>,
    /// Who commits.
    pub author: Author,
    /// What to show an HTTP server; other remotes know no credentials.
    pub credentials: Credentials,
    /// Certificates (PEM) of the authorities to trust with `https` instead of the system's.
    pub authorities: Option<PathBuf>,
    /// The folder below which the objects of remotes are kept, each branch in a folder of its own.
    /// All of it can be got again.
    pub work_dir: PathBuf,
    /// How much it may take.
    pub limits: Limits,
    /// Clock and waiting.
    pub pace: Arc<dyn Pace>,
}

impl Config {
    /// A writer on the whole repository, without credentials, with the usual limits.
    pub fn new(url: impl Into<String>, branch: impl Into<String>, work_dir: PathBuf) -> Self {
        Self {
            url: url.into(),
            branch: branch.into(),
            was_there: false,
            base: None,
            author: Author {
                name: "muster".to_owned(),
                email: "muster@localhost".to_owned(),
            },
            credentials: Credentials::None,
            authorities: None,
            work_dir,
            limits: Limits::default(),
            pace: Arc::new(SystemPace),
        }
    }

    /// Checks what can be checked without the remote.
    pub(crate) fn check(&self) -> Result<()> {
        let setting = |field, reason: &str| {
            Err(GitErrorKind::Setting {
                field,
                reason: reason.to_owned(),
            })
        };
        if gix_ref::FullName::try_from(format!("refs/heads/{}", self.branch)).is_err()
            || self.branch.starts_with('-')
        {
            return setting("branch", "it is no name of a branch");
        }
        let is_odd = |text: &str| {
            text.trim().is_empty() || text.contains(|c: char| c.is_control() || "<>".contains(c))
        };
        if is_odd(&self.author.name) {
            return setting(
                "author.name",
                "it is empty, or has angle brackets or control characters",
            );
        }
        if is_odd(&self.author.email) || self.author.email.contains(' ') {
            return setting(
                "author.email",
                "it is empty, or has spaces, angle brackets or control characters",
            );
        }
        if let Credentials::Basic { user, .. } = &self.credentials
            && user.contains(':')
        {
            return setting("credentials.user", "it has a colon");
        }
        if self.limits.tries == 0 {
            return setting("limits.tries", "it is 0");
        }
        Ok(())
    }
}

/// Who commits: author and committer of every commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    /// The name.
    pub name: String,
    /// The address.
    pub email: String,
}

/// What to show an HTTP server.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// Nothing.
    #[default]
    None,
    /// User and password, or what stands for them: most servers take a token as the password.
    Basic {
        /// The user, without a colon.
        user: String,
        /// The password or token.
        password: String,
    },
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Basic { user, .. } => f
                .debug_struct("Basic")
                .field("user", user)
                .finish_non_exhaustive(),
        }
    }
}

/// How much a writer may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How often a commit is tried when others push in between.
    pub tries: u32,
    /// The wait before the second try. It doubles with each, and half of it is left to chance, so
    /// that writers who met once do not meet again.
    pub back_off: Duration,
    /// What one fetch may bring, in bytes.
    pub fetch_bytes: u64,
    /// What one object of the repository may have, in bytes; objects are held in memory one at a
    /// time. Also what the paths of all files may have together where they are listed.
    pub object_bytes: usize,
    /// How many packs are kept in the working folder. Each commit and each fetch adds one; above
    /// this, all are dropped and the tip is fetched anew.
    pub packs: usize,
    /// How long to wait for a connection, and for each piece of an answer.
    pub stall: Duration,
    /// How long one conversation with the server may take: a look, a fetch, or a push.
    pub conversation: Duration,
}

impl Default for Limits {
    /// Five tries. 1 GiB is what the larger configuration repositories have; 256 MiB is above
    /// what the public servers take in one file.
    fn default() -> Self {
        Self {
            tries: 5,
            back_off: Duration::from_millis(200),
            fetch_bytes: 1 << 30,
            object_bytes: 256 << 20,
            packs: 200,
            stall: Duration::from_secs(30),
            conversation: Duration::from_secs(300),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::new("/srv/x.git", "main", PathBuf::from("/tmp"))
    }

    #[test]
    fn refuses_settings_by_name() {
        assert!(config().check().is_ok());
        let refused = |change: fn(&mut Config)| {
            let mut config = config();
            change(&mut config);
            config.check().expect_err("a bad setting").to_string()
        };
        assert!(refused(|c| c.branch = "a..b".to_owned()).starts_with("branch "));
        assert!(refused(|c| c.branch.clear()).starts_with("branch "));
        assert!(refused(|c| c.branch = "-f".to_owned()).starts_with("branch "));
        assert!(refused(|c| c.author.name = "a\nb".to_owned()).starts_with("author.name "));
        assert!(refused(|c| c.author.name = " ".to_owned()).starts_with("author.name "));
        assert!(refused(|c| c.author.email = "<a@b>".to_owned()).starts_with("author.email "));
        assert!(refused(|c| c.author.email = "a b".to_owned()).starts_with("author.email "));
        assert!(refused(|c| c.limits.tries = 0).starts_with("limits.tries "));
        let user = refused(|c| {
            c.credentials = Credentials::Basic {
                user: "a:b".to_owned(),
                password: "secret".to_owned(),
            };
        });
        assert!(user.starts_with("credentials.user "));
        assert!(!user.contains("secret"));
    }

    #[test]
    fn debug_output_has_no_password() {
        let credentials = Credentials::Basic {
            user: "ann".to_owned(),
            password: "secret".to_owned(),
        };
        let text = format!("{credentials:?}");
        assert!(text.contains("ann") && !text.contains("secret"), "{text}");
    }
}
