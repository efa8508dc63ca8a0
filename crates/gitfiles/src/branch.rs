//! One branch of one repository: its files, and commits to it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use gix_hash::ObjectId;
use gix_object::Kind;

use crate::branches::{Branches, Claim};
use crate::config::Config;
use crate::error::{GitError, GitErrorKind, Result};
use crate::local::Local;
use crate::location::{Location, redacted};
use crate::objects::NewObjects;
use crate::pace::back_off;
use crate::path::FilePath;
use crate::remote::{Look, Pushed, Start};
use crate::store::Store;
use crate::tree::{self, Wanted};
use crate::wire::Wire;

/// What a file is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The file, below the base folder.
    pub path: FilePath,
    /// What it is to hold; nothing to delete it.
    pub content: Option<Vec<u8>>,
}

/// What a commit did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The id of the commit; none if all files were as wanted.
    pub commit: Option<String>,
    /// How many files it wrote or deleted.
    pub changed: usize,
    /// Whether it was pushed. A commit that is not pushed is none, so that this is `false` only
    /// where there was nothing to do.
    pub pushed: bool,
    /// How often it was tried, 1 if nobody came in between.
    pub tries: u32,
}

/// A writer on a branch. All calls block, and wait for other writers of the same branch that came
/// from the same [`Branches`].
///
/// Each call looks at the remote first, and keeps nothing that the remote does not have: after an
/// error, the same call can be made again.
pub struct Branch {
    config: Config,
    location: Location,
    /// The full name of the branch.
    reference: String,
    shared: Arc<Mutex<Shared>>,
    /// How often this writer knows it to have vanished.
    vanished: AtomicU64,
    // Last, since it gives back `shared` when nobody else has it any more.
    _claim: Claim,
}

/// What all writers of one branch share.
pub(crate) struct Shared {
    /// Nothing for a repository of this machine.
    store: Option<Store>,
    /// Whether the branch was there at the last look.
    pub(crate) was_there: bool,
    /// How often it was not there any more: each writer has to hear of that.
    pub(crate) vanished: u64,
}

impl Shared {
    pub(crate) fn open(config: &Config, location: &Location) -> Result<Self> {
        let store = if location.is_local() {
            None
        } else {
            let key = format!("{}\0{}", location.key(), config.branch);
            Some(Store::open(&config.work_dir, &key)?)
        };
        Ok(Self {
            store,
            was_there: config.was_there,
            vanished: 0,
        })
    }
}

impl fmt::Debug for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Branch")
            .field("url", &redacted(&self.config.url))
            .field("branch", &self.config.branch)
            .field("base", &self.config.base)
            .finish_non_exhaustive()
    }
}

impl Branch {
    /// Opens a branch that no one else in this process writes to. Does not look at the remote yet.
    ///
    /// # Errors
    ///
    /// A setting or the working folder cannot be used.
    pub fn open(config: Config) -> Result<Self, GitError> {
        Branches::default().open(config)
    }

    pub(crate) fn new(
        config: Config,
        location: Location,
        shared: Arc<Mutex<Shared>>,
        vanished: u64,
        claim: Claim,
    ) -> Self {
        Self {
            reference: format!("refs/heads/{}", config.branch),
            config,
            location,
            shared,
            vanished: vanished.into(),
            _claim: claim,
        }
    }

    /// The regular files below the base folder, sorted; none if there is no branch yet, though
    /// those of the default branch if there is one, since the first commit starts from there.
    ///
    /// # Errors
    ///
    /// The remote cannot be looked at.
    pub fn files(&self) -> Result<Vec<FilePath>, GitError> {
        self.at_tip(|look, tree| tree::files(&look.objects, tree, self.config.base.as_ref()))
            .map(Option::unwrap_or_default)
    }

    /// The bytes of the regular file at `path` below the base folder, if there is one.
    ///
    /// # Errors
    ///
    /// The remote cannot be looked at.
    pub fn read(&self, path: &FilePath) -> Result<Option<Vec<u8>>, GitError> {
        self.at_tip(|look, tree| {
            let path = path.below(self.config.base.as_ref())?;
            tree::read(&look.objects, tree, &path)
        })
        .map(Option::flatten)
    }

    /// Makes files be as `changes` want them, by one commit on the remote's tip, and pushes it.
    /// Of several changes of one path the last counts.
    ///
    /// Equal bytes are no change, nor is the deletion of what is not there; if nothing changes
    /// there is no commit and no push. If others push in between, all is done anew on what they
    /// pushed. Nothing is merged, and nothing of others is undone but the content of the same files.
    ///
    /// # Errors
    ///
    /// None of the changes are on the remote, unless the connection broke when the server's answer
    /// was due.
    pub fn commit(&self, changes: &[Change], message: &str) -> Result<Outcome, GitError> {
        self.try_commit(changes, message)
            .map_err(|kind| error(&self.config, kind))
    }

    fn try_commit(&self, changes: &[Change], message: &str) -> Result<Outcome> {
        if message.trim().is_empty() || message.contains('\0') {
            return Err(GitErrorKind::Setting {
                field: "message",
                reason: "it is empty or has a zero byte".to_owned(),
            });
        }
        let mut wanted = Wanted::new();
        for change in changes {
            let path = change.path.below(self.config.base.as_ref())?;
            wanted.insert(path, change.content.as_deref());
        }
        let tries = self.config.limits.tries;
        let mut shared = self.lock();
        for tried in 1..=tries {
            let look = self.look(&mut shared)?;
            let root = look
                .start
                .commit()
                .map(|tip| look.objects.tree_of(tip))
                .transpose()?;
            let mut edited = tree::apply(&look.objects, root, &wanted)?;
            if edited.changed == 0 {
                return Ok(Outcome {
                    tries: tried,
                    ..Outcome::default()
                });
            }
            let bytes = self.commit_bytes(edited.root, look.start, message);
            let commit = edited.objects.add(Kind::Commit, &bytes)?;
            match self.push(&shared, look.start, commit, &edited.objects)? {
                Pushed::Done => {
                    shared.was_there = true;
                    return Ok(Outcome {
                        commit: Some(commit.to_string()),
                        changed: edited.changed,
                        pushed: true,
                        tries: tried,
                    });
                }
                Pushed::Vanished => {
                    shared.was_there = true;
                    self.note(&mut shared, false)?;
                    return Err(GitErrorKind::BranchVanished);
                }
                Pushed::Moved if tried < tries => {
                    let pace = &self.config.pace;
                    pace.sleep(back_off(self.config.limits.back_off, tried, pace.chance()));
                }
                Pushed::Moved => {}
            }
        }
        Err(GitErrorKind::UnknownCommits { tries })
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // A panic leaves nothing half done here: each call begins at the remote.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks `question` of the tree to start from, if there is one.
    fn at_tip<T>(
        &self,
        question: impl Fn(&Look, ObjectId) -> Result<T>,
    ) -> Result<Option<T>, GitError> {
        let answer = || {
            let look = self.look(&mut self.lock())?;
            let Some(tip) = look.start.commit() else {
                return Ok(None);
            };
            let tree = look.objects.tree_of(tip)?;
            question(&look, tree).map(Some)
        };
        answer().map_err(|kind| error(&self.config, kind))
    }

    fn look(&self, shared: &mut Shared) -> Result<Look> {
        let look = match (&self.location, &shared.store) {
            (Location::Path(path), _) => {
                Local::open(path, &self.reference, self.config.limits.object_bytes)?.look()?
            }
            (_, Some(store)) => self.wire(store).look()?,
            (_, None) => return Err(no_store()),
        };
        self.note(shared, look.start.branch().is_some())?;
        Ok(look)
    }

    /// Notes whether the branch is there.
    ///
    /// # Errors
    ///
    /// It has vanished since this writer looked last, whether or not it is there again.
    fn note(&self, shared: &mut Shared, is_there: bool) -> Result<()> {
        if shared.was_there && !is_there {
            shared.vanished += 1;
        }
        shared.was_there = is_there;
        let known = self.vanished.swap(shared.vanished, Ordering::Relaxed);
        if known == shared.vanished {
            Ok(())
        } else {
            Err(GitErrorKind::BranchVanished)
        }
    }

    fn push(
        &self,
        shared: &Shared,
        start: Start,
        commit: ObjectId,
        objects: &NewObjects,
    ) -> Result<Pushed> {
        match (&self.location, &shared.store) {
            (Location::Path(path), _) => Local::open(
                path,
                &self.reference,
                self.config.limits.object_bytes,
            )?
            .push(start.branch(), commit, objects),
            (_, Some(store)) => self.wire(store).push(start.branch(), commit, objects),
            (_, None) => Err(no_store()),
        }
    }

    const fn wire<'s>(&'s self, store: &'s Store) -> Wire<'s> {
        Wire {
            config: &self.config,
            location: &self.location,
            reference: self.reference.as_str(),
            store,
        }
    }

    fn commit_bytes(&self, tree: ObjectId, start: Start, message: &str) -> Vec<u8> {
        let now = self.config.pace.now();
        let seconds = now
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let author = &self.config.author;
        let who = format!("{} <{}> {seconds} +0000", author.name, author.email);
        let parent = start
            .commit()
            .map(|tip| format!("parent {tip}\n"))
            .unwrap_or_default();
        let message = message.trim_end();
        format!("tree {tree}\n{parent}author {who}\ncommitter {who}\n\n{message}\n").into_bytes()
    }
}

/// Cannot be, since each location that is not of this machine gets a store.
fn no_store() -> GitErrorKind {
    GitErrorKind::Damaged {
        reason: "nothing is kept of this repository".to_owned(),
    }
}

/// Adds where it happened.
pub(crate) fn error(config: &Config, kind: GitErrorKind) -> GitError {
    GitError {
        url: redacted(&config.url),
        branch: config.branch.clone(),
        kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_can_go_to_a_thread_that_may_block() {
        const fn is_send_and_sync<T: Send + Sync + 'static>() {}
        is_send_and_sync::<Branch>();
        is_send_and_sync::<Branches>();
        is_send_and_sync::<GitError>();
    }
}
