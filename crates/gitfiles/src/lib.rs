//! Files on a branch of a Git repository, without a work tree and without the `git` program.
//!
//! A caller says what files are to hold; one commit on the remote's tip makes it so. Others may
//! write to the same branch: what they pushed is what the commit is built on, and if they push in
//! between, it is built anew. The repository is a server's (`http`, `https`, `git`) or a folder of
//! this machine. All calls block.
//!
//! | Module | What |
//! |---|---|
//! | [`branch`] | one writer: its files, its commits |
//! | [`branches`] | who writes to which branch and folder in this process |
//! | [`config`] | where, who, and how much |
//! | [`path`] | paths that every system can hold |
//! | [`layout`] | where an object of Kubernetes is in the repository |
//! | [`mod@message`] | what a commit says of such objects |
//! | [`error`] | what can go wrong |
//! | [`pace`] | clock and waiting |
//! | `tree` | changes to trees, blob by blob |
//! | `objects`, `store` | objects read and written, and those kept of a remote |
//! | `location`, `remote` | where a repository is, what is asked of it |
//! | `local` | a repository of this machine |
//! | `wire` | a repository of a server: Git's protocol over TCP and HTTP |
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use muster_gitfiles::{Config, FilePath};
//!
//! let mut config = Config::new("https://git.example.com/fleet.git", "main", "/tmp/git".into());
//! config.base = Some(FilePath::new("clusters/c1")?);
//! // Branches::open(config)?.commit(&changes, "message")? writes to it.
//! # Ok(())
//! # }
//! ```

pub mod branch;
pub mod branches;
pub mod config;
pub mod error;
pub mod layout;
mod local;
mod location;
pub mod message;
mod objects;
pub mod pace;
pub mod path;
mod remote;
mod store;
mod tree;
mod wire;

pub use branch::{Branch, Change, Outcome};
pub use branches::Branches;
pub use config::{Author, Config, Credentials, Limits};
pub use error::{GitError, GitErrorKind};
pub use layout::ObjectName;
pub use message::{Operation, message};
pub use pace::{Pace, SystemPace};
pub use path::{FilePath, PathError};
