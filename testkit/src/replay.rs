//! Exported histories as tests: the present code must make the same decisions that they record.
//!
//! ```text
//!   order.jsonl ─┐                     ┌─ fits
//!   trip.jsonl  ─┼─► the code, by name ┼─ differs, from event 17 on
//!   …           ─┘                     └─ no code
//! ```
//!
//! Nothing is recorded, called or awaited: no runtime is needed.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use millrun_workflow::{ExportedHistory, ExportedHistoryError, Fit, Implementation, Limits, VersionPolicy};

/// How the names of files end that are replayed.
const EXTENSION: &str = "jsonl";
/// The largest file that is read.
pub const HISTORY_FILE_BYTES_MAX: u64 = 1 << 30;
/// How many files of a folder are replayed at most.
pub const HISTORY_FILES_LEN_MAX: usize = 100_000;

/// The results of replaying histories.
#[derive(Debug)]
#[non_exhaustive]
pub struct ReplayReport {
    /// Each file, in the order of the names.
    pub files: Vec<ReplayedFile>,
}

/// One file that was replayed.
#[derive(Debug)]
#[non_exhaustive]
pub struct ReplayedFile {
    /// Where it is.
    pub path: PathBuf,
    /// The name of the workflow; empty if the file cannot be read.
    pub workflow: String,
    /// Whether the code fits the history, or why the file has none.
    pub fit: Result<Fit, ExportedHistoryError>,
}

/// Why histories were not all replayed to their ends. Its text, which a failing test prints, gives for each difference the
/// number of histories that have it, and both columns.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ReplayRefused {
    /// There is no history at this place: a test that replays nothing would always pass.
    #[error("there is no file `*.jsonl` in {}: export one with `millrun history ID --export`", .path.display())]
    Nothing {
        /// The place.
        path: PathBuf,
    },
    /// There are more than [`HISTORY_FILES_LEN_MAX`].
    #[error("there are more than {HISTORY_FILES_LEN_MAX} files in {}: use several folders", .path.display())]
    TooMany {
        /// The folder.
        path: PathBuf,
    },
    /// A file is larger than [`HISTORY_FILE_BYTES_MAX`].
    #[error("{} is larger than {HISTORY_FILE_BYTES_MAX} bytes", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// A file or a folder cannot be read.
    #[error("{} cannot be read: {cause}", .path.display())]
    Unreadable {
        /// The place.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// There is code that does not fit its history.
    #[error("{0}")]
    Unfit(ReplayReport),
}

/// Prints its text: so `unwrap`, and a `main` or a test that returns it, show that.
impl fmt::Debug for ReplayRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Replays an exported history, or all files `*.jsonl` of a folder (without its subfolders), with this code: for a program's
/// runtime that is `RuntimeBuilder::implementations`.
///
/// A history comes from `RunHandle::export_history`, or from `millrun history ID --export`. In the test below it replaces the
/// files that a program commits.
///
/// ```
/// use millrun::{Runtime, RuntimeBuilder, Workflow, WorkflowContext, WorkflowError};
///
/// const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
///
/// async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
///     Ok(number * 2)
/// }
///
/// /// What the program's `main` calls as well.
/// fn registered(builder: RuntimeBuilder) -> RuntimeBuilder {
///     builder.register(DOUBLE, double)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let runtime = registered(Runtime::volatile()).start().await?;
/// # let run = runtime.start(DOUBLE, "d", 21).await?;
/// # run.result().await?;
/// # std::fs::write(folder.path().join("double.jsonl"), run.export_history().await?.to_string())?;
/// # let histories = folder.path();
/// let report = millrun_testkit::replay(histories, registered(Runtime::volatile()).implementations())?;
/// assert_eq!(report.files[0].workflow, "double");
/// # Ok(())
/// # }
/// ```
///
/// If a workflow has several [versions](millrun_workflow::Workflow::version), a history is tried on the code that its run
/// would have in a runtime: that of its own version, or the newest if the [policy](VersionPolicy) makes runs move there.
///
/// Values that the code encodes differently from how they are recorded are not differences, as in a runtime: see
/// [`Fit::Fits`]. A program that changes `limits` of its configuration must pass them to [`replay_with`], and so must a test
/// that wants to be [strict](Limits::strict).
///
/// # Errors
/// See [`ReplayRefused`].
pub fn replay(
    path: impl AsRef<Path>,
    code: impl IntoIterator<Item = Implementation>,
) -> Result<ReplayReport, ReplayRefused> {
    replay_with(path, code, Limits::default())
}

/// As [`replay`], within these limits.
///
/// # Errors
/// See [`ReplayRefused`].
pub fn replay_with(
    path: impl AsRef<Path>,
    code: impl IntoIterator<Item = Implementation>,
    limits: Limits,
) -> Result<ReplayReport, ReplayRefused> {
    let path = path.as_ref();
    let mut versions: BTreeMap<&'static str, Vec<Implementation>> = BTreeMap::new();
    for code in code {
        versions.entry(code.name()).or_default().push(code);
    }
    let mut files = Vec::new();
    for file in files_of(path)? {
        let text = read(&file)?;
        let history = text.parse::<ExportedHistory>();
        let workflow = history
            .as_ref()
            .map_or("", |history| history.workflow())
            .to_owned();
        let versions = versions.get(workflow.as_str()).map_or(&[][..], Vec::as_slice);
        let fit = history.and_then(|history| fit_of(&history, versions, limits));
        files.push(ReplayedFile {
            path: file,
            workflow,
            fit,
        });
    }
    let report = ReplayReport { files };
    if report.files.iter().all(ReplayedFile::is_fit) {
        return Ok(report);
    }
    Err(ReplayRefused::Unfit(report))
}

/// Whether a history fits the code that its run would have: of its own version, or of the newest if runs move there.
fn fit_of(
    history: &ExportedHistory,
    versions: &[Implementation],
    limits: Limits,
) -> Result<Fit, ExportedHistoryError> {
    let own = versions.iter().find(|code| code.version() == history.version());
    let newest = versions.iter().max_by_key(|code| code.version());
    let Some(newest) = newest.filter(|newest| {
        newest.version() > history.version() && newest.version_policy() != VersionPolicy::Pinned
    }) else {
        return history.fit(own, limits);
    };
    let fit = history.fit(Some(newest), limits)?;
    match own.filter(|_| newest.version_policy() == VersionPolicy::MoveIfFits) {
        Some(own) if !fit.is_fit() => history.fit(Some(own), limits),
        Some(_) | None => Ok(fit),
    }
}

fn files_of(path: &Path) -> Result<Vec<PathBuf>, ReplayRefused> {
    let unreadable = |cause| ReplayRefused::Unreadable {
        path: path.to_owned(),
        cause,
    };
    if path.metadata().map_err(unreadable)?.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in path.read_dir().map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        if file.extension().is_none_or(|extension| extension != EXTENSION) || file.is_dir() {
            continue;
        }
        if files.len() == HISTORY_FILES_LEN_MAX {
            let path = path.to_owned();
            return Err(ReplayRefused::TooMany { path });
        }
        files.push(file);
    }
    if files.is_empty() {
        let path = path.to_owned();
        return Err(ReplayRefused::Nothing { path });
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> Result<String, ReplayRefused> {
    let unreadable = |cause| ReplayRefused::Unreadable {
        path: path.to_owned(),
        cause,
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    let len = file.take(HISTORY_FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    if len.map_err(unreadable)? as u64 > HISTORY_FILE_BYTES_MAX {
        let path = path.to_owned();
        return Err(ReplayRefused::TooLarge { path });
    }
    // A text that was cut off within a character is reported as cut off.
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    };
    Ok(text)
}

impl ReplayedFile {
    /// Whether the file has a history, and the code fits it.
    #[must_use]
    pub fn is_fit(&self) -> bool {
        self.fit.as_ref().is_ok_and(Fit::is_fit)
    }

    /// What is wrong, in words; `None` if nothing is.
    fn trouble(&self) -> Option<String> {
        match &self.fit {
            Ok(Fit::Differs(difference)) => {
                let workflow = &self.workflow;
                Some(format!(
                    "the code of {workflow} decides otherwise:\n{}",
                    difference.columns()
                ))
            }
            Ok(Fit::Fails(difference)) => {
                let workflow = &self.workflow;
                Some(format!("the code of {workflow} fails:\n{}", difference.columns()))
            }
            Ok(Fit::NoCode { workflow, version: 0 }) => Some(format!("there is no code for {workflow}\n")),
            Ok(Fit::NoCode { workflow, version }) => {
                Some(format!("there is no code for version {version} of {workflow}\n"))
            }
            Ok(_) => None,
            Err(error) => Some(format!("{error}\n")),
        }
    }
}

/// How many histories fit, and the errors of the others: those with the same error together.
impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut troubles: BTreeMap<String, Vec<&Path>> = BTreeMap::new();
        for file in &self.files {
            if let Some(trouble) = file.trouble() {
                troubles.entry(trouble).or_default().push(&file.path);
            }
        }
        let unfit: usize = troubles.values().map(Vec::len).sum();
        let all = self.files.len();
        writeln!(f, "{} of {all} histories fit the code", all - unfit)?;
        for (trouble, files) in troubles {
            let first = files[0].display();
            match files.len() - 1 {
                0 => writeln!(f, "\n{first}")?,
                more => writeln!(f, "\n{first}, and {more} more")?,
            }
            f.write_str(&trouble)?;
        }
        Ok(())
    }
}
