//! What a branch asks of a repository, wherever it is.

use gix_hash::ObjectId;

use crate::objects::Objects;

/// What the next commit builds on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The tip of the branch.
    Branch(ObjectId),
    /// There is no such branch: the tip of the default branch.
    Default(ObjectId),
    /// There is neither.
    Empty,
}

impl Start {
    /// The commit to build on.
    pub(crate) const fn commit(self) -> Option<ObjectId> {
        match self {
            Self::Branch(tip) | Self::Default(tip) => Some(tip),
            Self::Empty => None,
        }
    }

    /// What the branch points to.
    pub(crate) const fn branch(self) -> Option<ObjectId> {
        match self {
            Self::Branch(tip) => Some(tip),
            Self::Default(_) | Self::Empty => None,
        }
    }
}

/// What a look at the remote gives.
pub(crate) struct Look {
    /// Where to begin.
    pub(crate) start: Start,
    /// The objects, with all of that commit's trees.
    pub(crate) objects: Objects,
}

/// What became of a push that nobody refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// The branch points to the new commit.
    Done,
    /// It pointed to another commit than the one that was built on.
    Moved,
    /// It was there and is not any more.
    Vanished,
}
