//! The parts of a runtime for its users: their status, their events, and why one was not killed.

/// A part of the runtime as the supervision tree shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartStatus {
    /// Its name.
    pub name: String,
    /// Whether it runs now.
    pub is_running: bool,
    /// How often it has been restarted.
    pub restarts: u32,
}

/// Something that happened to a part of the runtime; published on the topic `millrun.parts`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartEvent {
    /// The part's name.
    pub part: String,
    /// What happened.
    pub change: PartChange,
}

/// What may happen to a part.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartChange {
    /// It failed.
    Failed {
        /// The message.
        message: String,
    },
    /// It was restarted.
    Restarted {
        /// How often by now.
        restarts: u32,
    },
    /// It ended as planned.
    Stopped,
}

/// Why a part was not killed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KillError {
    /// There is no part of this name.
    #[error("there is no part named {part:?}")]
    Unknown {
        /// The name.
        part: String,
    },
    /// The part does not run at the moment.
    #[error("{part} does not run at the moment")]
    NotRunning {
        /// The name.
        part: String,
    },
    /// Without this part the runtime stops.
    #[error("{part} cannot be restarted: the runtime would stop")]
    NotRestartable {
        /// The name.
        part: String,
    },
}
