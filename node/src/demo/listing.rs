//! The list of files a tree had when its checksums were begun, kept in a file of its own.
//!
//! A hundred thousand names would not fit into one step's result, so the step that lists a tree
//! writes them to a file beside the store, and its recorded result says which part of that file
//! belongs to which chunk. What is listed is fixed from then on, however often the work is
//! interrupted.
//!
//! ```text
//!   list file:   name NUL name NUL … name NUL │ name NUL …          │ …
//!                └─ chunk 0: offset 0, bytes ─┘└─ chunk 1: offset … ┘
//! ```

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::demo::tree::{LeftOut, Survey, WalkError, walk};
use crate::output::shown;
use crate::path_bytes::PathBytes;

/// How many files one chunk has at most. A chunk is one run; its history grows with its files.
pub(crate) const CHUNK_FILES_MAX: u32 = 256;
/// How many bytes of names end a chunk early. The names of a chunk are one step's result.
const CHUNK_NAMES_BYTES_MAX: u64 = 256 * 1024;
/// How many chunks one list may have: their ranges are one step's result too. At 256 files
/// each, this is more than two million files.
const CHUNKS_MAX: usize = 8_192;

/// Where the names of one chunk stand in the list file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChunkRange {
    /// Of its first name, in bytes.
    pub(crate) offset: u64,
    /// Of all its names, their ends included.
    pub(crate) bytes: u64,
    pub(crate) files: u32,
}

/// A list that has been written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listing {
    pub(crate) survey: Survey,
    pub(crate) chunks: Vec<ChunkRange>,
}

/// Why there is no list, or a list cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    #[error(transparent)]
    Walk(#[from] WalkError<io::Error>),
    #[error("the list file {} cannot be written or read", shown(path))]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the tree has more files than one list may have, {CHUNKS_MAX} chunks of {CHUNK_FILES_MAX}")]
    TooManyFiles,
    #[error("the list file {} is not the one that was written for this run", shown(path))]
    Foreign { path: PathBuf },
}

impl ListError {
    /// Whether the same call may succeed later, without anybody's help.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::File { source, .. } => source.kind() != io::ErrorKind::NotFound,
            Self::Walk(WalkError::Refused(_)) => true,
            Self::Walk(WalkError::Root { .. }) | Self::TooManyFiles | Self::Foreign { .. } => false,
        }
    }
}

/// Lists the regular files below `root` into `list`, which appears whole or not at all. Blocks.
///
/// # Errors
/// When the root cannot be read, the disk refuses, or the tree is too large for one list.
pub(crate) fn write(root: &Path, left_out: &LeftOut, list: &Path) -> Result<Listing, ListError> {
    let failed = |source| ListError::File {
        path: list.to_path_buf(),
        source,
    };
    let partial = list.with_added_extension("partial");
    let mut file = BufWriter::new(File::create(&partial).map_err(failed)?);
    let mut ranges = Ranges::default();
    let survey = walk(root, left_out, |path| {
        let name = PathBytes::from(path);
        file.write_all(name.as_bytes())?;
        file.write_all(&[0])?;
        ranges.add(name.as_bytes().len() as u64 + 1);
        Ok(())
    })?;
    if ranges.done.len() > CHUNKS_MAX {
        return Err(ListError::TooManyFiles);
    }
    let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)?;
    fs::rename(&partial, list).map_err(failed)?;
    Ok(Listing {
        survey,
        chunks: ranges.done,
    })
}

/// Reads the names of one chunk. Blocks.
///
/// # Errors
/// When the file cannot be read, or does not hold what the range says.
pub(crate) fn read(list: &Path, range: ChunkRange) -> Result<Vec<PathBytes>, ListError> {
    let failed = |source| ListError::File {
        path: list.to_path_buf(),
        source,
    };
    let foreign = || ListError::Foreign {
        path: list.to_path_buf(),
    };
    let mut file = File::open(list).map_err(failed)?;
    file.seek(SeekFrom::Start(range.offset)).map_err(failed)?;
    let mut names = Vec::new();
    file.take(range.bytes).read_to_end(&mut names).map_err(failed)?;
    if names.len() as u64 != range.bytes || names.pop() != Some(0) {
        return Err(foreign());
    }
    let names: Vec<_> = names
        .split(|byte| *byte == 0)
        .map(|name| PathBytes::from(name.to_vec()))
        .collect();
    if names.len() != range.files as usize {
        return Err(foreign());
    }
    Ok(names)
}

/// Cuts a growing list into chunks.
#[derive(Debug, Default)]
struct Ranges {
    done: Vec<ChunkRange>,
    end: u64,
}

impl Ranges {
    fn add(&mut self, bytes: u64) {
        let is_full = |chunk: &ChunkRange| {
            chunk.files == CHUNK_FILES_MAX || chunk.bytes + bytes > CHUNK_NAMES_BYTES_MAX
        };
        match self.done.last_mut().filter(|chunk| !is_full(chunk)) {
            Some(chunk) => {
                chunk.bytes += bytes;
                chunk.files += 1;
            }
            None => self.done.push(ChunkRange {
                offset: self.end,
                bytes,
                files: 1,
            }),
        }
        self.end += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_in_exactly_one_chunk() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("tree");
        fs::create_dir(&root).unwrap();
        let names: Vec<String> = (0..600).map(|number| format!("file {number:03}\n")).collect();
        for name in &names {
            fs::write(root.join(name), "x").unwrap();
        }
        let list = folder.path().join("list");
        let listing = write(&root, &LeftOut::default(), &list).unwrap();
        assert_eq!(
            listing.chunks.iter().map(|chunk| chunk.files).collect::<Vec<_>>(),
            [256, 256, 88]
        );
        assert_eq!(listing.survey.files, 600);
        let read: Vec<_> = listing
            .chunks
            .iter()
            .flat_map(|chunk| read(&list, *chunk).unwrap())
            .collect();
        assert_eq!(
            read,
            names
                .iter()
                .map(|name| name.clone().into_bytes().into())
                .collect::<Vec<PathBytes>>()
        );
    }

    #[test]
    fn long_names_end_a_chunk_early() {
        let mut ranges = Ranges::default();
        (0..200).for_each(|_| ranges.add(4_096));
        assert!(
            ranges
                .done
                .iter()
                .all(|chunk| chunk.bytes <= CHUNK_NAMES_BYTES_MAX)
        );
        assert_eq!(ranges.done.iter().map(|chunk| chunk.files).sum::<u32>(), 200);
        assert_eq!(ranges.done.len(), 4);
    }

    #[test]
    fn an_empty_tree_has_no_chunks() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("tree");
        fs::create_dir(&root).unwrap();
        let listing = write(&root, &LeftOut::default(), &folder.path().join("list")).unwrap();
        assert_eq!((listing.survey.files, listing.chunks), (0, Vec::new()));
    }

    #[test]
    fn a_list_that_does_not_fit_its_ranges_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("list");
        fs::write(&list, b"one\0two\0").unwrap();
        let range = |offset, bytes, files| ChunkRange { offset, bytes, files };
        assert_eq!(read(&list, range(0, 8, 2)).unwrap().len(), 2);
        for wrong in [
            range(0, 9, 2),
            range(0, 7, 2),
            range(0, 8, 3),
            range(8, 4, 1),
            range(0, 0, 0),
        ] {
            assert!(
                matches!(read(&list, wrong), Err(ListError::Foreign { .. })),
                "{wrong:?}"
            );
        }
        fs::remove_file(&list).unwrap();
        assert!(matches!(read(&list, range(0, 8, 2)), Err(ListError::File { .. })));
    }
}
