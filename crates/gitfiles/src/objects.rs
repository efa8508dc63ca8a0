//! Objects of a repository: those it has, and those of a commit to come.

use std::collections::HashSet;
use std::path::Path;

use gix_hash::ObjectId;
use gix_object::{Data, Find as _, Kind, Write as _};
use gix_pack::data::output;
use gix_pack::data::output::bytes::FromEntriesIter;

use crate::error::{GitErrorKind, Result};

/// The only kind of hash that is supported.
pub(crate) const HASH: gix_hash::Kind = gix_hash::Kind::Sha1;

/// Objects in a folder, loose and in packs.
pub(crate) struct Objects {
    database: gix_odb::Handle,
    object_bytes: usize,
}

impl Objects {
    /// Opens the folder `objects` of a repository.
    pub(crate) fn open(objects: &Path, object_bytes: usize) -> Result<Self> {
        let options = gix_odb::store::init::Options {
            alloc_limit_bytes: Some(object_bytes),
            ..Default::default()
        };
        gix_odb::at_opts(objects, HASH, None, options)
            .map(|database| Self {
                database,
                object_bytes,
            })
            .map_err(|source| GitErrorKind::Folder {
                path: objects.to_owned(),
                source,
            })
    }

    /// The bytes of object `id`, which must be of this kind.
    pub(crate) fn get(&self, id: ObjectId, kind: Kind) -> Result<Vec<u8>> {
        let damaged = |reason: String| GitErrorKind::Damaged { reason };
        let mut bytes = Vec::new();
        let found = self
            .database
            .try_find(&id, &mut bytes)
            .map_err(|error| damaged(format!("{kind} {id}: {error}")))?
            .ok_or_else(|| damaged(format!("{kind} {id} is missing")))?
            .kind;
        if found != kind {
            return Err(damaged(format!("{id} is a {found}, not a {kind}")));
        }
        if bytes.len() > self.object_bytes {
            return Err(GitErrorKind::TooLarge {
                what: "an object",
                limit: self.object_bytes as u64,
            });
        }
        Ok(bytes)
    }

    /// The tree of commit `id`.
    pub(crate) fn tree_of(&self, id: ObjectId) -> Result<ObjectId> {
        let bytes = self.get(id, Kind::Commit)?;
        gix_object::CommitRefIter::from_bytes(&bytes, HASH)
            .tree_id()
            .map_err(|error| GitErrorKind::Damaged {
                reason: format!("commit {id}: {error}"),
            })
    }

    /// Writes `new` as loose objects, what is pointed to before what points to it.
    pub(crate) fn write(&self, new: &NewObjects) -> Result<(), String> {
        for object in &new.objects {
            self.database
                .write_buf_with_known_id(object.kind, &object.bytes, object.id)
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// What one object may have, in bytes.
    pub(crate) const fn object_bytes(&self) -> usize {
        self.object_bytes
    }

    /// For looking up what a thin pack builds on.
    pub(crate) const fn database(&self) -> &gix_odb::Handle {
        &self.database
    }
}

struct NewObject {
    id: ObjectId,
    kind: Kind,
    bytes: Vec<u8>,
}

/// The objects of a commit to come, each once. They are in memory only until they are pushed.
#[derive(Default)]
pub(crate) struct NewObjects {
    objects: Vec<NewObject>,
    known: HashSet<ObjectId>,
}

impl NewObjects {
    /// Takes in an object and gives back its id.
    pub(crate) fn add(&mut self, kind: Kind, bytes: &[u8]) -> Result<ObjectId> {
        let id = id_of(kind, bytes)?;
        if self.known.insert(id) {
            let bytes = bytes.to_owned();
            self.objects.push(NewObject { id, kind, bytes });
        }
        Ok(id)
    }

    /// All of them as a pack.
    pub(crate) fn pack(&self) -> Result<Vec<u8>> {
        let failed = |error: gix_object::bstr::BString| GitErrorKind::Damaged {
            reason: format!("the pack of new objects: {error}"),
        };
        let too_many = |_| failed("too many objects".into());
        let count = u32::try_from(self.objects.len()).map_err(too_many)?;
        let entries = self.objects.iter().map(|object| {
            let entry = output::Entry::from_data(
                &output::Count::from_data(object.id, None),
                &Data::new(&object.bytes, object.kind, HASH),
                gix_zlib::Compression::DEFAULT,
            )?;
            Ok(vec![entry])
        });
        let mut pack = Vec::new();
        for written in
            FromEntriesIter::new(entries, &mut pack, count, gix_pack::data::Version::V2, HASH)
        {
            written.map_err(|error| failed(error.to_string().into()))?;
        }
        Ok(pack)
    }
}

/// What `git hash-object` gives.
pub(crate) fn id_of(kind: Kind, bytes: &[u8]) -> Result<ObjectId> {
    gix_object::compute_hash(HASH, kind, bytes).map_err(|error| GitErrorKind::Damaged {
        // The hash detects bytes that were made to collide.
        reason: format!("a {kind} cannot be hashed: {error}"),
    })
}

/// Reads `id` from the text that Git has for it.
pub(crate) fn parse_id(hex: &[u8]) -> Option<ObjectId> {
    // 64 digits would be an id of SHA-256.
    (hex.len() == HASH.len_in_hex())
        .then(|| ObjectId::from_hex(hex).ok())
        .flatten()
}
