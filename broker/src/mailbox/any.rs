//! A mailbox whose values are of any type.

use std::any::Any;
use std::sync::Arc;

use super::{Mailbox, MailboxStats};

/// A mailbox, whatever it holds.
pub(crate) trait AnyMailbox: Any + Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn stats(&self) -> MailboxStats;
    fn capacity(&self) -> usize;
    fn is_finished(&self) -> bool;
    fn close(&self);
    fn watch(&self, emptied: Arc<dyn Fn() + Send + Sync>);
}

impl<T: Send + Sync + 'static> AnyMailbox for Mailbox<T> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn stats(&self) -> MailboxStats {
        Self::stats(self)
    }

    fn capacity(&self) -> usize {
        Self::capacity(self)
    }

    fn is_finished(&self) -> bool {
        Self::is_finished(self)
    }

    fn close(&self) {
        Self::close(self);
    }

    fn watch(&self, emptied: Arc<dyn Fn() + Send + Sync>) {
        Self::watch(self, emptied);
    }
}
