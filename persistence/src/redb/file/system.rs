//! Where operating systems differ: reads and writes at a position, the identity of files, and how a new name in a folder
//! becomes durable.
//!
//! On Windows the standard library gives no file number: two files are distinguished by their times of creation, and a file
//! that has no name any more cannot be told from a renamed one.

use std::io;
use std::path::Path;

#[cfg(unix)]
use unix::sync_folder;
#[cfg(unix)]
pub(crate) use unix::{Identity, has_name, identity, read_exact_at, write_all_at};
#[cfg(windows)]
use windows::sync_folder;
#[cfg(windows)]
pub(crate) use windows::{Identity, has_name, identity, read_exact_at, write_all_at};

/// Makes the name of a file durable.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    sync_folder(folder.unwrap_or(Path::new(".")))
}

#[cfg(unix)]
mod unix {
    use std::fs::{File, Metadata};
    use std::io;
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::path::Path;

    /// Device and inode number.
    pub(crate) type Identity = (u64, u64);

    pub(crate) fn identity(metadata: &Metadata) -> Identity {
        (metadata.dev(), metadata.ino())
    }

    /// Whether the file of an open handle still has a name.
    pub(crate) fn has_name(metadata: &Metadata) -> bool {
        metadata.nlink() > 0
    }

    pub(crate) fn read_exact_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<()> {
        file.read_exact_at(out, offset)
    }

    pub(crate) fn write_all_at(file: &File, data: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(data, offset)
    }

    /// Makes the names in a folder durable.
    pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }
}

#[cfg(windows)]
mod windows {
    use std::fs::{File, Metadata};
    use std::io;
    use std::os::windows::fs::{FileExt, MetadataExt};
    use std::path::Path;

    /// The time of creation.
    pub(crate) type Identity = u64;

    pub(crate) fn identity(metadata: &Metadata) -> Identity {
        metadata.creation_time()
    }

    /// Not known: a file whose name is gone counts as moved, so the user looks for it before restoring a backup.
    pub(crate) fn has_name(_metadata: &Metadata) -> bool {
        true
    }

    pub(crate) fn read_exact_at(file: &File, mut out: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !out.is_empty() {
            match file.seek_read(out, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    out = &mut out[read..];
                    offset += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(crate) fn write_all_at(file: &File, mut data: &[u8], mut offset: u64) -> io::Result<()> {
        while !data.is_empty() {
            match file.seek_write(data, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    data = &data[written..];
                    offset += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Does nothing: folders cannot be synced through a handle, and NTFS keeps a journal of names.
    pub(crate) fn sync_folder(_folder: &Path) -> io::Result<()> {
        Ok(())
    }
}
