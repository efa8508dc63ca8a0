//! The objects of a remote that are kept on this machine.
//!
//! ```text
//! {work_dir}/{hash of url and branch}/
//!   lock        held as long as there is a writer
//!   tip         the commit whose tree is complete in objects
//!   objects/    packs
//! ```
//!
//! All of it can be got again: whatever seems wrong is dropped, and the next look at the remote
//! begins with nothing.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use gix_hash::ObjectId;
use gix_object::Kind;

use crate::config::Limits;
use crate::error::{GitErrorKind, Result};
use crate::objects::{HASH, Objects, id_of, parse_id};

pub(crate) struct Store {
    folder: PathBuf,
    lock: File,
}

impl Drop for Store {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that is just being started by another thread
        // has it, too, until it is under way. If this fails, closing is what is left.
        let _ = self.lock.unlock();
    }
}

impl Store {
    /// Opens or makes the store for `key` below `work_dir`.
    pub(crate) fn open(work_dir: &Path, key: &str) -> Result<Self> {
        let folder = work_dir.join(id_of(Kind::Blob, key.as_bytes())?.to_string());
        for dir in [work_dir, &folder] {
            muster_privatefiles::create_dir_all(dir).map_err(at(dir))?;
        }
        let path = folder.join("lock");
        let mut options = File::options();
        options.write(true).create(true).truncate(true);
        let lock = muster_privatefiles::open(&path, &mut options).map_err(at(&path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(GitErrorKind::FolderInUse { path: folder });
            }
            Err(TryLockError::Error(error)) => return Err(at(&path)(error)),
        }
        Ok(Self { folder, lock })
    }

    fn objects_folder(&self) -> PathBuf {
        self.folder.join("objects")
    }

    /// The objects as they are now.
    pub(crate) fn objects(&self, limits: &Limits) -> Result<Objects> {
        let folder = self.objects_folder();
        let packs = folder.join("pack");
        for dir in [&folder, &packs] {
            muster_privatefiles::create_dir_all(dir).map_err(at(dir))?;
        }
        Objects::open(&folder, limits.object_bytes)
    }

    /// The commit whose tree is here.
    pub(crate) fn tip(&self) -> Result<Option<ObjectId>> {
        let path = self.folder.join("tip");
        match fs::read(&path) {
            Ok(hex) => Ok(parse_id(hex.trim_ascii_end())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at(&path)(error)),
        }
    }

    /// Notes that the tree of `tip` is here, or that none is known to be.
    pub(crate) fn set_tip(&self, tip: Option<ObjectId>) -> Result<()> {
        let path = self.folder.join("tip");
        match tip {
            Some(tip) => {
                let new = self.folder.join("tip.new");
                let mut options = File::options();
                options.write(true).create(true).truncate(true);
                muster_privatefiles::open(&new, &mut options)
                    .and_then(|mut file| file.write_all(format!("{tip}\n").as_bytes()))
                    .map_err(at(&new))?;
                fs::rename(&new, &path).map_err(at(&path))
            }
            None => ignore_missing(fs::remove_file(&path)).map_err(at(&path)),
        }
    }

    /// Takes in a pack, which may build on objects that are here already.
    ///
    /// # Errors
    ///
    /// `Ok(Err(text))` if it is the pack that is wrong, or reading it.
    pub(crate) fn add_pack(
        &self,
        pack: &mut dyn BufRead,
        limits: &Limits,
    ) -> Result<Result<(), String>> {
        let objects = self.objects(limits)?;
        let packs = self.objects_folder().join("pack");
        let options = gix_pack::bundle::write::Options {
            thread_limit: Some(1),
            alloc_limit_bytes: Some(limits.object_bytes),
            ..Default::default()
        };
        let written = gix_pack::Bundle::write_to_directory(
            pack,
            Some(&packs),
            &mut gix_utils::progress::Discard,
            &AtomicBool::new(false),
            Some(objects.database()),
            HASH,
            options,
        );
        match written {
            Ok(outcome) => {
                if let Some(keep) = outcome.keep_path {
                    ignore_missing(fs::remove_file(&keep)).map_err(at(&keep))?;
                }
                for path in [outcome.data_path, outcome.index_path]
                    .into_iter()
                    .flatten()
                {
                    muster_privatefiles::narrow(&path).map_err(at(&path))?;
                }
                Ok(Ok(()))
            }
            Err(error) => Ok(Err(format!("{error:#}"))),
        }
    }

    /// Whether there are more packs than `limits` allow.
    pub(crate) fn is_full(&self, limits: &Limits) -> Result<bool> {
        let packs = self.objects_folder().join("pack");
        match fs::read_dir(&packs) {
            Ok(entries) => {
                let is_pack = |entry: &io::Result<fs::DirEntry>| {
                    entry
                        .as_ref()
                        .is_ok_and(|e| e.path().extension().is_some_and(|e| e == "pack"))
                };
                Ok(entries.filter(is_pack).count() > limits.packs)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(at(&packs)(error)),
        }
    }

    /// Drops all that is kept.
    pub(crate) fn clear(&self) -> Result<()> {
        self.set_tip(None)?;
        let objects = self.objects_folder();
        ignore_missing(fs::remove_dir_all(&objects)).map_err(at(&objects))
    }
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> GitErrorKind {
    let path = path.to_owned();
    move |source| GitErrorKind::Folder {
        path: path.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_free_again_when_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), "key").unwrap();
        let error = Store::open(folder.path(), "key").err().unwrap();
        assert!(matches!(error, GitErrorKind::FolderInUse { .. }), "{error}");
        Store::open(folder.path(), "another").unwrap();
        // As a process has it that is just being started.
        let inherited = store.lock.try_clone().unwrap();
        drop(store);
        Store::open(folder.path(), "key").unwrap();
        drop(inherited);
    }

    #[test]
    fn tips_are_kept_and_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), "key").unwrap();
        assert_eq!(store.tip().unwrap(), None);
        let tip = parse_id("1".repeat(40).as_bytes());
        store.set_tip(tip).unwrap();
        assert_eq!(store.tip().unwrap(), tip);
        store.clear().unwrap();
        assert_eq!(store.tip().unwrap(), None);
        store.set_tip(None).unwrap();

        fs::create_dir(store.folder.join("tip")).unwrap();
        let error = store.tip().unwrap_err();
        assert!(matches!(error, GitErrorKind::Folder { .. }), "{error}");
        assert!(error.to_string().contains("/tip"), "{error}");
        fs::write(store.folder.join("objects"), "").unwrap();
        let error = store.objects(&Limits::default()).err().unwrap();
        assert!(matches!(error, GitErrorKind::Folder { .. }), "{error}");
    }
}
