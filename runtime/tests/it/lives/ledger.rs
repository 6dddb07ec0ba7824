//! What those outside know: what they asked for, what was acknowledged, and what must follow from it.

use std::collections::BTreeMap;

use super::program::Book;

/// Whether a signal is sent under a request, and so recorded once.
pub(super) fn is_named(value: u64) -> bool {
    value.is_multiple_of(2)
}

/// Of one instance. It outlives the runtime.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) is_started: bool,
    /// How often each signal was sent, the last times without an answer, and the latest acknowledged.
    pub(super) told: BTreeMap<u64, u64>,
    pub(super) told_len: u64,
    /// Where each acknowledged update stands.
    pub(super) changed: BTreeMap<u64, u64>,
    /// What was read last.
    pub(super) read: Book,
    pub(super) end: Option<Book>,
}

impl Known {
    /// Whether an answer shows all that was acknowledged when the question was asked, and nothing less than
    /// was shown before.
    pub(super) fn check_read(&self, asked: &BTreeMap<u64, u64>, book: &Book) -> Result<(), String> {
        for (value, at) in asked {
            if book.changed.get(usize::try_from(*at).unwrap()) != Some(value) {
                return Err(format!(
                    "update {value} was acknowledged at {at}, and is not in {book:?}"
                ));
            }
        }
        let Book { told, changed, .. } = &self.read;
        if !book.told.starts_with(told) || !book.changed.starts_with(changed) {
            return Err(format!("{book:?} was read after {:?}", self.read));
        }
        Ok(())
    }

    /// Whether the end is one that those outside can explain.
    pub(super) fn check_end(&self, tells: u64, changes: u64, sum: u64) -> Result<(), String> {
        let book = self.end.as_ref().ok_or("it has not ended")?;
        let fail = |what: &str| Err(format!("{what}: {book:?}, of {self:?}"));
        if !book.told.is_sorted() || book.told.last().copied().unwrap_or(0) != tells {
            return fail("signals out of order");
        }
        for value in 1..=tells {
            let times = book.told.iter().filter(|told| **told == value).count() as u64;
            let sent = self.told.get(&value).copied().unwrap_or(0);
            let times_max = if is_named(value) { sent.min(1) } else { sent };
            if times > times_max || (times == 0 && value <= self.told_len) {
                return fail("a signal was lost or invented");
            }
        }
        let mut changed = book.changed.clone();
        changed.sort_unstable();
        if changed != (0..changes).collect::<Vec<_>>() {
            return fail("updates are not made once each");
        }
        if book.sum != sum {
            return fail(&format!("not worth {sum}"));
        }
        self.check_read(&self.changed, book)
    }
}
