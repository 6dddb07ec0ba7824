//! The bytes that outlive the process: the layout of everything that is written to a file, and nothing else.
//!
//! One module per format version. A reader keeps all of them; a writer uses the newest.

pub(crate) mod inventory;
pub(crate) mod kept_head;
pub(crate) mod ndjson;
pub(crate) mod piece;
pub(crate) mod settled;
pub(crate) mod snapshot;
pub(crate) mod superblock;
pub(crate) mod topic_frame;
pub(crate) mod topic_row;
pub(crate) mod v1;
