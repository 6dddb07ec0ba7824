//! Why a text is no exported history.

use millrun_core::Sequence;

/// Why a text is no [exported history](crate::ExportedHistory), or events do not make one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportedHistoryError {
    /// The first line is not that of an exported history.
    #[error(
        "this is no exported history: its first line names the format. Export one with `millrun history ID --export`, or with \
         `RunHandle::export_history`"
    )]
    OtherFormat,
    /// A later release has written it.
    #[error(
        "it was exported by a later release, as version {version} of the format: read it with that release, or a later one"
    )]
    Newer {
        /// The version.
        version: u32,
    },
    /// A line is no part of a history.
    #[error("line {line} is no part of an exported history: {problem}")]
    Malformed {
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// The end of the file is missing.
    #[error("it was cut off: its last event is number {has}, and the history has {head}; export it again")]
    CutOff {
        /// The last event that is there.
        has: Sequence,
        /// The last event of the history.
        head: Sequence,
    },
    /// All lines can be read, but they do not make a history.
    #[error("these events are no history: {problem}")]
    NoHistory {
        /// What is wrong.
        problem: String,
    },
}
