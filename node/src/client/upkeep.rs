//! Upkeep of a store: by the process that has it, or else of its file.

use std::error::Error;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use millrun::host::{HostConfig, TokioHost};
use millrun::store::{self, ClosedStore};

use super::error::ClientError;
use super::options::{At, Form, OfProgram};
use super::place::client;
use super::raw::Raw;
use super::wire::{Ask, Client, Place};
use super::{show, write};
use crate::outcome::Outcome;
use crate::output::{note, shown, tell};

/// How long the process may take: its own bound (`upkeep_within_s`) is the one that counts.
const ANSWER_WITHIN: Duration = Duration::from_secs(7 * 24 * 3_600);
/// How long the threads that worked on a store may take to end.
const END_WITHIN: Duration = Duration::from_secs(10);

/// Where a copy is written.
#[derive(Debug, Args)]
pub(crate) struct Copy {
    /// The file to write, which must not exist.
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The backup.
    pub(crate) backup: PathBuf,
    /// The store to make of it, which must not exist.
    pub(crate) to: PathBuf,
}

/// Reads every record, and tells what is damaged.
pub(super) async fn verify(of: OfProgram) -> Result<Outcome, Box<dyn Error>> {
    let client = client(&of.at).await?;
    let text = client
        .ask(asked_at_length("verify_store", "{}".to_owned()))
        .await?;
    write(&text, of.form, show::fields)?;
    let is_sound = Raw::parse(&text)?.text_of("is_sound") == "true";
    if !is_sound {
        note("try: millrun salvage FROM TO, or restore a backup");
    }
    Ok(if is_sound {
        Outcome::Complete
    } else {
        Outcome::Partial
    })
}

/// Writes a copy of a store.
pub(super) async fn backup(options: Copy) -> Result<Outcome, Box<dyn Error>> {
    let client = client(&options.at).await?;
    if let Place::Closed(file) = &client.place {
        let copied = file.open().await?.upkeep().backup(&options.file).await;
        copied.map_err(ClientError::Upkeep)?;
    } else {
        from_process(&client, "backup_store", &options.file).await?;
    }
    done(&options, "backup")
}

/// Writes all histories of a store as lines.
pub(super) async fn export(options: Copy) -> Result<Outcome, Box<dyn Error>> {
    let client = client(&options.at).await?;
    if let Place::Closed(file) = &client.place {
        let exported = file.open().await?.upkeep().export(&options.file).await;
        exported.map_err(ClientError::Upkeep)?;
    } else {
        from_process(&client, "export_store", &options.file).await?;
    }
    done(&options, "export")
}

fn done(options: &Copy, what: &str) -> Result<Outcome, Box<dyn Error>> {
    if options.form.json || options.form.jsonl {
        let path = options.file.display().to_string();
        tell(serde_json::json!({ "path": path }))?;
    } else {
        tell(format_args!("the {what} is in {}", shown(&options.file)))?;
    }
    Ok(Outcome::Complete)
}

/// Has the process write a copy beside its store, and moves that to its place.
async fn from_process(client: &Client, operation: &str, to: &Path) -> Result<(), Box<dyn Error>> {
    if to.exists() {
        return Err(ClientError::Exists(to.to_owned()).into());
    }
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let name = format!("{}-{}", since.as_nanos(), std::process::id());
    let body = serde_json::json!({ "name": name }).to_string();
    let answer = Raw::parse(&client.ask(asked_at_length(operation, body)).await?)?;
    let from = PathBuf::from(answer.text_of("path"));
    if matches!(client.place, Place::Address { .. }) && !from.exists() {
        note("the copy stays on the machine of the program");
        return Err(ClientError::Elsewhere(from).into());
    }
    moved(&from, to).map_err(|source| {
        ClientError::Unmoved {
            from,
            to: to.to_owned(),
            source,
        }
        .into()
    })
}

/// Moves a file, also to another file system, and over none.
fn moved(from: &Path, to: &Path) -> io::Result<()> {
    match named(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            copied(from, to)?;
            fs::remove_file(from)
        }
        moved => moved,
    }
}

/// Copies a file, whole or not at all, and over none.
fn copied(from: &Path, to: &Path) -> io::Result<()> {
    let mut draft = to.as_os_str().to_owned();
    draft.push(".copying");
    let draft = PathBuf::from(draft);
    let copied = fs::copy(from, &draft)
        .and_then(|_| File::open(&draft)?.sync_all())
        .and_then(|()| named(&draft, to));
    if copied.is_err() {
        // Nobody knows of the draft; the next copy makes it anew.
        fs::remove_file(&draft).ok();
    }
    copied
}

/// Gives a file its name, if no other has it. A renaming would write over that.
fn named(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from)?,
        Err(error) => match error.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::CrossesDevices => return Err(error),
            // The file system has no second names.
            _ if !to.exists() => fs::rename(from, to)?,
            _ => return Err(io::ErrorKind::AlreadyExists.into()),
        },
    }
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Makes a store of a backup.
pub(crate) async fn restore(options: Restore) -> Result<Outcome, Box<dyn Error>> {
    let Restore { backup, to } = options;
    if to.exists() {
        return Err(ClientError::Exists(to).into());
    }
    let copy = ClosedStore::open(&backup).await?;
    let verified = copy.upkeep().verify().await?;
    if !verified.damaged.is_empty() {
        let command = format!("millrun salvage {} {}", backup.display(), to.display());
        return Err(ClientError::DamagedBackup { backup, command }.into());
    }
    // It is locked as long as it is open here, so that what is copied is what was verified.
    copied(&backup, &to).map_err(|source| ClientError::Unmoved {
        from: backup.clone(),
        to: to.clone(),
        source,
    })?;
    tell(format_args!(
        "{} live and {} finished runs are in {}",
        copy.report().live,
        copy.report().finished,
        shown(&to)
    ))?;
    Ok(Outcome::Complete)
}

/// Gives free space of a file back.
pub(super) async fn compact(of: OfProgram) -> Result<Outcome, Box<dyn Error>> {
    let client = client(&of.at).await?;
    let Place::Closed(file) = &client.place else {
        let text = client.ask(asked("compact_store", Some("{}".to_owned()))).await?;
        write(&text, of.form, |_| {
            "it has begun; millrun inspect tells how small the file has become".to_owned()
        })?;
        return Ok(Outcome::Complete);
    };
    let path = file.path().to_owned();
    let owner = TokioHost::spawn(HostConfig::default()).await?;
    let host = owner.host();
    let worked = tokio::task::spawn_blocking(move || store::compact(&path, &*host)).await?;
    owner.shutdown(END_WITHIN).await.ok();
    let compacted = worked.map_err(|error| file.unopened(error.into()))?;
    let (before, after) = (compacted.bytes_before, compacted.bytes_after);
    if of.form.json || of.form.jsonl {
        tell(serde_json::json!({ "bytes_before": before, "bytes_after": after }))?;
    } else {
        tell(format_args!("{before} bytes became {after}"))?;
    }
    Ok(Outcome::Complete)
}

/// Asks for what takes as long as the store is large.
fn asked_at_length(operation: &str, body: String) -> Ask<'_> {
    Ask {
        wait: ANSWER_WITHIN,
        ..asked(operation, Some(body))
    }
}

fn asked(operation: &str, body: Option<String>) -> Ask<'_> {
    Ask {
        operation,
        body,
        ..Ask::default()
    }
}
