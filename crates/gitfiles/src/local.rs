//! A repository of this machine, without Git's protocol: objects are written to where they belong,
//! and the reference is moved under Git's own lock if it is what it was. Hooks do not run.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gix_hash::ObjectId;
use gix_lock::acquire::Fail;
use gix_ref::transaction::{PreviousValue, RefEdit};
use gix_ref::{FullName, Target};

use crate::error::{GitErrorKind, Result};
use crate::objects::{HASH, NewObjects, Objects};
use crate::remote::{Look, Pushed, Start};

/// How long to wait for who holds the lock of a reference; Git itself waits 100 ms.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// A repository of this machine.
pub(crate) struct Local {
    git_dir: PathBuf,
    reference: FullName,
    object_bytes: usize,
}

impl Local {
    /// Opens the repository at `path`: its Git folder, or the work tree around it.
    pub(crate) fn open(path: &Path, reference: &str, object_bytes: usize) -> Result<Self> {
        let not = |reason: String| GitErrorKind::NotARepository { reason };
        let inner = path.join(".git");
        if inner.is_file() {
            return Err(GitErrorKind::Unsupported {
                what: "a linked work tree or submodule; name the repository itself".to_owned(),
            });
        }
        let git_dir = if inner.is_dir() {
            inner
        } else {
            path.to_owned()
        };
        for part in ["HEAD", "objects", "refs"] {
            match fs::metadata(git_dir.join(part)) {
                Ok(_) => {}
                Err(error) => return Err(not(format!("{part}: {error}"))),
            }
        }
        check_format(&git_dir)?;
        let reference = FullName::try_from(reference).map_err(|error| GitErrorKind::Setting {
            field: "branch",
            reason: error.to_string(),
        })?;
        Ok(Self {
            git_dir,
            reference,
            object_bytes,
        })
    }

    /// Looks at the branch.
    pub(crate) fn look(&self) -> Result<Look> {
        let start = match self.tip()? {
            Some(tip) => Start::Branch(tip),
            None => self.default_tip()?.map_or(Start::Empty, Start::Default),
        };
        let objects = Objects::open(&self.git_dir.join("objects"), self.object_bytes)?;
        Ok(Look { start, objects })
    }

    /// Moves the branch from `old` to `new`, if it is still there.
    pub(crate) fn push(
        &self,
        old: Option<ObjectId>,
        new: ObjectId,
        objects: &NewObjects,
    ) -> Result<Pushed> {
        if self.is_checked_out()? {
            return Err(GitErrorKind::CheckedOut);
        }
        Objects::open(&self.git_dir.join("objects"), self.object_bytes)?
            .write(objects)
            .map_err(|reason| GitErrorKind::Refused { reason })?;
        let expected = match old {
            Some(old) => PreviousValue::MustExistAndMatch(Target::Object(old)),
            None => PreviousValue::MustNotExist,
        };
        let edit = RefEdit::update(self.reference.clone(), new, expected, "push");
        let wait = Fail::AfterDurationWithBackoff(LOCK_WAIT);
        let refs = self.refs();
        let moved = refs
            .transaction()
            .prepare([edit], wait, wait)
            .and_then(|transaction| transaction.commit(None));
        match moved {
            Ok(_) => Ok(Pushed::Done),
            Err(error) => match self.tip()? {
                tip if tip == old => Err(GitErrorKind::Refused {
                    reason: format!("{error:#}"),
                }),
                Some(_) => Ok(Pushed::Moved),
                None => Ok(Pushed::Vanished),
            },
        }
    }

    fn refs(&self) -> gix_ref::file::Store {
        let options = gix_ref::store::init::Options {
            // A log entry needs a name of who pushed; the commit has it already.
            write_reflog: gix_ref::store::WriteReflog::Disable,
            ..Default::default()
        };
        gix_ref::file::Store::at_opts(self.git_dir.clone(), HASH, options)
    }

    fn tip(&self) -> Result<Option<ObjectId>> {
        self.resolve(&self.reference)
    }

    /// The tip of what HEAD names.
    fn default_tip(&self) -> Result<Option<ObjectId>> {
        match self.target("HEAD")? {
            Some(Target::Object(id)) => Ok(Some(id)),
            Some(Target::Symbolic(name)) => self.resolve(&name),
            None => Ok(None),
        }
    }

    fn resolve(&self, name: &FullName) -> Result<Option<ObjectId>> {
        match self.target(name.as_bstr().to_string().as_str())? {
            Some(Target::Object(id)) => Ok(Some(id)),
            Some(Target::Symbolic(other)) => Err(GitErrorKind::Unsupported {
                what: format!("{} as another name of {}", name.as_bstr(), other.as_bstr()),
            }),
            None => Ok(None),
        }
    }

    fn target(&self, name: &str) -> Result<Option<Target>> {
        self.refs()
            .try_find(name)
            .map(|found| found.map(|reference| reference.target))
            .map_err(|error| GitErrorKind::Damaged {
                reason: format!("{name}: {error:#}"),
            })
    }

    /// Whether the branch is checked out in a work tree of this repository.
    fn is_checked_out(&self) -> Result<bool> {
        let mut heads = Vec::new();
        if !is_bare(&self.git_dir)? {
            heads.push(self.git_dir.join("HEAD"));
        }
        if let Ok(linked) = fs::read_dir(self.git_dir.join("worktrees")) {
            heads.extend(linked.flatten().map(|entry| entry.path().join("HEAD")));
        }
        let checked_out = format!("ref: {}", self.reference.as_bstr());
        Ok(heads
            .iter()
            .filter_map(|head| fs::read_to_string(head).ok())
            .any(|head| head.trim_end() == checked_out))
    }
}

fn read_config(git_dir: &Path) -> Result<gix_config::File> {
    let path = git_dir.join("config");
    let unreadable = |reason: String| GitErrorKind::NotARepository {
        reason: format!("{}: {reason}", path.display()),
    };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        // Git does without one, too.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(unreadable(error.to_string())),
    };
    text.parse().map_err(|error| unreadable(format!("{error}")))
}

fn check_format(git_dir: &Path) -> Result<()> {
    let config = read_config(git_dir)?;
    for (key, usual) in [
        ("extensions.objectFormat", "sha1"),
        ("extensions.refStorage", "files"),
    ] {
        if let Some(value) = config.string(key)
            && value != usual
        {
            return Err(GitErrorKind::Unsupported {
                what: format!("a repository with {key} = {value}"),
            });
        }
    }
    Ok(())
}

fn is_bare(git_dir: &Path) -> Result<bool> {
    let is_bare = read_config(git_dir)?.boolean("core.bare").ok().flatten();
    // As Git does: what is not said is told by the name.
    Ok(is_bare.unwrap_or_else(|| !git_dir.ends_with(".git")))
}

#[cfg(test)]
mod tests {
    use gix_object::Kind;

    use super::*;

    fn commit(message: &str) -> (ObjectId, NewObjects) {
        let mut objects = NewObjects::default();
        let tree = objects.add(Kind::Tree, &[]).unwrap();
        let who = "Ann <ann@example.com> 0 +0000";
        let text = format!("tree {tree}\nauthor {who}\ncommitter {who}\n\n{message}\n");
        let commit = objects.add(Kind::Commit, text.as_bytes()).unwrap();
        (commit, objects)
    }

    #[test]
    fn a_branch_moves_only_from_where_it_was_seen() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for name in ["objects", "refs"] {
            fs::create_dir(file(name)).unwrap();
        }
        fs::write(file("HEAD"), "ref: refs/heads/main\n").unwrap();
        let local = Local::open(folder.path(), "refs/heads/main", 1 << 20).unwrap();
        assert_eq!(local.look().unwrap().start, Start::Empty);

        let [(a, of_a), (b, of_b), (c, of_c)] = ["a", "b", "c"].map(commit);
        assert_eq!(local.push(None, a, &of_a).unwrap(), Pushed::Done);
        assert_eq!(local.push(None, b, &of_b).unwrap(), Pushed::Moved);
        assert_eq!(local.look().unwrap().start, Start::Branch(a));
        assert_eq!(local.push(Some(a), b, &of_b).unwrap(), Pushed::Done);
        assert_eq!(local.push(Some(a), c, &of_c).unwrap(), Pushed::Moved);
        assert_eq!(local.look().unwrap().start, Start::Branch(b));

        let other = Local::open(folder.path(), "refs/heads/other", 1 << 20).unwrap();
        assert_eq!(other.look().unwrap().start, Start::Default(b));
        fs::remove_file(file("refs/heads/main")).unwrap();
        assert_eq!(local.push(Some(b), c, &of_c).unwrap(), Pushed::Vanished);
        assert_eq!(local.look().unwrap().start, Start::Empty);

        fs::create_dir_all(file("refs/heads")).unwrap();
        fs::write(file("refs/heads/main"), "ref: refs/heads/other\n").unwrap();
        let error = local.look().err().unwrap();
        assert!(matches!(error, GitErrorKind::Unsupported { .. }), "{error}");
        fs::write(file("refs/heads/main"), "nonsense\n").unwrap();
        let error = local.look().err().unwrap();
        assert!(matches!(error, GitErrorKind::Damaged { .. }), "{error}");
    }
}
