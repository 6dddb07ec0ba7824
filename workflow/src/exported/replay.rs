//! Trying code on a history: a replay that records nothing and does nothing.

use millrun_core::{RunId, Timestamp};

use super::{ExportedHistory, ExportedHistoryError};
use crate::event::{Event, Name, Nondeterminism};
use crate::machine::Unfit;
use crate::{Implementation, Instance, KeptBeginning, Limits, ReplayError};

/// Whether code fits a history: whether it makes the recorded decisions again, from the last checkpoint, where a runtime
/// would begin, or else from the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fit {
    /// The code fits. If the run is parked, it fits up to there: later inputs have been shown to no code.
    Fits {
        /// How many values it encodes differently from the recorded ones: an input that has got another field, say. Always
        /// zero with [strict](Limits::strict) limits, under which such a value is a difference.
        changed_values: u64,
    },
    /// It decides differently, from this event on.
    Differs(Box<Nondeterminism>),
    /// It panics, or awaits something that the history does not know, at this event; [`replayed`](Nondeterminism::replayed)
    /// says what.
    Fails(Box<Nondeterminism>),
    /// There is no code for it.
    NoCode {
        /// The name of its workflow.
        workflow: String,
        /// The version that it needs.
        version: u32,
    },
}

impl Fit {
    /// Tries code on a history, from its kept beginning if it is trimmed: the code is run to the end of the history, without
    /// any effect.
    ///
    /// # Errors
    /// When the events are no history, for any code.
    pub fn of(
        implementation: Option<&Implementation>,
        run: RunId,
        kept: Option<KeptBeginning>,
        events: impl IntoIterator<Item = (Event, Timestamp)>,
        limits: Limits,
    ) -> Result<Self, ReplayError> {
        Self::with_patches(implementation, run, kept, events, limits).map(|(fit, _)| fit)
    }

    /// As [`of`](Self::of), with the [changes](crate::WorkflowContext::patched) that the code has asked for since the last
    /// checkpoint, and whether the run took the new way of each.
    ///
    /// # Errors
    /// When the events are no history, for any code.
    pub fn with_patches(
        implementation: Option<&Implementation>,
        run: RunId,
        kept: Option<KeptBeginning>,
        events: impl IntoIterator<Item = (Event, Timestamp)>,
        limits: Limits,
    ) -> Result<(Self, Vec<(Name, bool)>), ReplayError> {
        let (fit, instance) = Self::with_instance(implementation, run, kept, events, limits)?;
        Ok((fit, instance.patches()))
    }

    /// As [`of`](Self::of), with the run as it is where the events end: what it waits for, and what it answers to
    /// [queries](Instance::query). If the code does not fit, what the events tell is all that is known of it.
    ///
    /// The events end where a turn does: behind them stands none that [goes with](Event::goes_with) the last.
    ///
    /// # Errors
    /// When the events are no history, whatever the code.
    pub fn with_instance(
        implementation: Option<&Implementation>,
        run: RunId,
        kept: Option<KeptBeginning>,
        events: impl IntoIterator<Item = (Event, Timestamp)>,
        limits: Limits,
    ) -> Result<(Self, Instance), ReplayError> {
        let (instance, difference) = match kept {
            Some(kept) => Instance::try_kept(implementation, run, kept, events, limits)?,
            None => Instance::try_whole(implementation, run, events, limits)?,
        };
        if implementation.is_none() {
            let started = instance.ledger().started();
            let workflow = started.map_or_else(String::new, |started| started.workflow.to_string());
            let version = instance.ledger().version();
            return Ok((Self::NoCode { workflow, version }, instance));
        }
        let fit = match difference {
            Some(Unfit::Differs(difference)) => Self::Differs(Box::new(difference)),
            Some(Unfit::Fails(difference)) => Self::Fails(Box::new(difference)),
            None => Self::Fits {
                changed_values: instance.changed_values(),
            },
        };
        Ok((fit, instance))
    }

    /// Whether the code fits.
    #[must_use]
    pub fn is_fit(&self) -> bool {
        matches!(self, Self::Fits { .. })
    }
}

impl ExportedHistory {
    /// Tries code on it; see [`Fit::of`]. The code may be of another version than the history's [own](Self::version): this
    /// shows whether the run could move to that version.
    ///
    /// # Errors
    /// [`ExportedHistoryError::NoHistory`] when the events are no history, for any code.
    pub fn fit(
        &self,
        implementation: Option<&Implementation>,
        limits: Limits,
    ) -> Result<Fit, ExportedHistoryError> {
        let kept = self.kept.as_ref().map(|kept| self.kept_beginning(kept));
        let events = self.events.iter();
        let events = events.map(|recorded| (recorded.event.clone(), recorded.at));
        let fit = Fit::of(implementation, self.run, kept.transpose()?, events, limits);
        fit.map_err(|error| ExportedHistoryError::NoHistory {
            problem: error.to_string(),
        })
    }
}
