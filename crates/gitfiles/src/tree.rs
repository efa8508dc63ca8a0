//! Changes of files to a tree, without a work tree: only the folders on the way to a change are
//! read and written.

use std::collections::BTreeMap;

use gix_hash::ObjectId;
use gix_object::bstr::{BString, ByteSlice as _};
use gix_object::tree::{Entry, EntryKind, EntryMode};
use gix_object::{Kind, Tree, TreeRefIter, WriteTo as _};

use crate::error::{GitErrorKind, Result};
use crate::objects::{HASH, NewObjects, Objects, id_of};
use crate::path::FilePath;

/// Full paths and what they are to hold; nothing to delete the file.
pub(crate) type Wanted<'a> = BTreeMap<FilePath, Option<&'a [u8]>>;

/// What came of the changes.
pub(crate) struct Edited {
    /// The new tree of the repository.
    pub(crate) root: ObjectId,
    /// How many files were written or deleted.
    pub(crate) changed: usize,
    /// The new trees and blobs.
    pub(crate) objects: NewObjects,
}

/// Makes the files of the tree `root` be as wanted. Equal bytes are no change, nor is the
/// deletion of what is not there. A file keeps its mode, and everything else is left as it is.
pub(crate) fn apply(
    objects: &Objects,
    root: Option<ObjectId>,
    wanted: &Wanted<'_>,
) -> Result<Edited> {
    let mut top = Node::default();
    for (path, content) in wanted {
        let node = path
            .segments()
            .fold(&mut top, |node, name| node.below.entry(name).or_default());
        node.file = Some((path, *content));
    }
    let mut edit = Edit {
        objects,
        new: NewObjects::default(),
        changed: 0,
    };
    let tree = edit.folder(root, &top)?;
    let root = match tree {
        Some(tree) => tree,
        // Git has no empty folders, but for the root.
        None => edit.new.add(Kind::Tree, &[])?,
    };
    Ok(Edited {
        root,
        changed: edit.changed,
        objects: edit.new,
    })
}

/// What is wanted of one name in a folder. Both may be: a file that makes way for a folder.
#[derive(Default)]
struct Node<'a> {
    file: Option<(&'a FilePath, Option<&'a [u8]>)>,
    below: BTreeMap<&'a str, Self>,
}

impl<'a> Node<'a> {
    /// A file to be written in this folder or further below.
    fn first_write(&self) -> Option<&'a FilePath> {
        self.below.values().find_map(|node| match node.file {
            Some((path, Some(_))) => Some(path),
            _ => node.first_write(),
        })
    }
}

type Entries = BTreeMap<BString, (EntryMode, ObjectId)>;

struct Edit<'o> {
    objects: &'o Objects,
    new: NewObjects,
    changed: usize,
}

impl Edit<'_> {
    /// The tree that comes of the folder `id`, if anything is left in it.
    fn folder(&mut self, id: Option<ObjectId>, wanted: &Node<'_>) -> Result<Option<ObjectId>> {
        let before = entries(self.objects, id)?;
        let mut entries = before.clone();
        for (name, node) in &wanted.below {
            let name = BString::from(*name);
            // In this order a file can make way for a folder, and a folder for a file.
            if let Some((_, None)) = node.file {
                self.delete(&mut entries, &name);
            }
            if !node.below.is_empty() {
                self.descend(&mut entries, &name, node)?;
            }
            if let Some((path, Some(content))) = node.file {
                self.write(&mut entries, name, path, content)?;
            }
        }
        if entries == before {
            return Ok(id);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let mut tree = Tree {
            entries: entries
                .into_iter()
                .map(|(filename, (mode, oid))| Entry {
                    mode,
                    filename,
                    oid,
                })
                .collect(),
        };
        // Git sorts a folder as if its name ended in a slash.
        tree.entries.sort();
        let mut bytes = Vec::new();
        tree.write_to(&mut bytes)
            .map_err(|error| GitErrorKind::Damaged {
                reason: format!("a tree cannot be written: {error}"),
            })?;
        self.new.add(Kind::Tree, &bytes).map(Some)
    }

    fn delete(&mut self, entries: &mut Entries, name: &BString) {
        // Folders, links and submodules of that name are not the file.
        if entries.get(name).is_some_and(|(mode, _)| mode.is_blob()) {
            entries.remove(name);
            self.changed += 1;
        }
    }

    fn descend(&mut self, entries: &mut Entries, name: &BString, node: &Node<'_>) -> Result<()> {
        let below = match entries.get(name) {
            None => None,
            Some((mode, id)) if mode.is_tree() => Some(*id),
            // Nothing of ours can be below it, hence nothing is to be deleted there.
            Some((mode, _)) => {
                return match node.first_write() {
                    Some(path) => Err(occupied(path, *mode)),
                    None => Ok(()),
                };
            }
        };
        let edited = self.folder(below, node)?;
        if edited != below {
            match edited {
                Some(id) => entries.insert(name.clone(), (EntryKind::Tree.into(), id)),
                None => entries.remove(name),
            };
        }
        Ok(())
    }

    fn write(
        &mut self,
        entries: &mut Entries,
        name: BString,
        path: &FilePath,
        content: &[u8],
    ) -> Result<()> {
        let mode = match entries.get(&name) {
            None => EntryKind::Blob.into(),
            Some((mode, id)) if mode.is_blob() => {
                if *id == id_of(Kind::Blob, content)? {
                    return Ok(());
                }
                *mode
            }
            Some((mode, _)) => return Err(occupied(path, *mode)),
        };
        let id = self.new.add(Kind::Blob, content)?;
        entries.insert(name, (mode, id));
        self.changed += 1;
        Ok(())
    }
}

fn occupied(path: &FilePath, mode: EntryMode) -> GitErrorKind {
    GitErrorKind::Occupied {
        path: path.clone(),
        by: match mode.kind() {
            EntryKind::Tree => "a folder",
            EntryKind::Link => "a symbolic link",
            EntryKind::Commit => "a submodule",
            EntryKind::Blob | EntryKind::BlobExecutable => "a file",
        },
    }
}

fn entries(objects: &Objects, id: Option<ObjectId>) -> Result<Entries> {
    let Some(id) = id else {
        return Ok(Entries::new());
    };
    let bytes = objects.get(id, Kind::Tree)?;
    TreeRefIter::from_bytes(&bytes, HASH)
        .map(|entry| {
            entry
                .map(|entry| {
                    (
                        entry.filename.to_owned(),
                        (entry.mode, entry.oid.to_owned()),
                    )
                })
                .map_err(|error| GitErrorKind::Damaged {
                    reason: format!("tree {id}: {error}"),
                })
        })
        .collect()
}

/// The entry at `path` in the tree `root`.
fn find(
    objects: &Objects,
    root: ObjectId,
    path: &FilePath,
) -> Result<Option<(EntryMode, ObjectId)>> {
    let mut at = (EntryKind::Tree.into(), root);
    for name in path.segments() {
        if !EntryMode::is_tree(&at.0) {
            return Ok(None);
        }
        match entries(objects, Some(at.1))?.remove(name.as_bytes().as_bstr()) {
            Some(entry) => at = entry,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// The bytes of the regular file at `path`.
pub(crate) fn read(objects: &Objects, root: ObjectId, path: &FilePath) -> Result<Option<Vec<u8>>> {
    match find(objects, root, path)? {
        Some((mode, id)) if mode.is_blob() => objects.get(id, Kind::Blob).map(Some),
        _ => Ok(None),
    }
}

/// The regular files below `base`, as paths relative to it, sorted. Those whose names could not
/// have been written here are left out.
pub(crate) fn files(
    objects: &Objects,
    root: ObjectId,
    base: Option<&FilePath>,
) -> Result<Vec<FilePath>> {
    let top = match base {
        None => root,
        Some(base) => match find(objects, root, base)? {
            Some((mode, id)) if mode.is_tree() => id,
            _ => return Ok(Vec::new()),
        },
    };
    // A tree that holds another many times over may list more than there is memory.
    let mut bytes_left = objects.object_bytes();
    let mut found = Vec::new();
    let mut folders = vec![(String::new(), top)];
    while let Some((prefix, id)) = folders.pop() {
        for (name, (mode, id)) in entries(objects, Some(id))? {
            let Ok(path) = name.to_str().map(|name| format!("{prefix}{name}")) else {
                continue;
            };
            bytes_left = bytes_left
                .checked_sub(path.len())
                .ok_or(GitErrorKind::TooLarge {
                    what: "the list of files",
                    limit: objects.object_bytes() as u64,
                })?;
            // Also bounds how deep a tree is followed that was made to go on forever.
            let Ok(path) = FilePath::new(path) else {
                continue;
            };
            if mode.is_tree() {
                folders.push((format!("{path}/"), id));
            } else if mode.is_blob() {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
