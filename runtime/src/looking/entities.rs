//! The entities of a definition by the prefix of their keys, in pages.

use std::fmt;

use millrun_workflow::{Entity, EntityState};

use crate::looking::find::{RunCursor, RunSearch, RunStatus};
use crate::{RunError, Runtime};

/// A search for entities; made by [`Runtime::entities`].
#[must_use = "nothing is looked for until a page is asked for"]
pub struct EntitySearch<'a, S> {
    runtime: &'a Runtime,
    entity: Entity<S>,
    prefix: String,
}

impl<S> fmt::Debug for EntitySearch<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntitySearch")
            .field("entity", &self.entity)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// Some entities.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct EntitiesPage {
    /// Their keys, the latest begun first.
    pub keys: Vec<String>,
    /// Where the next page begins, if there may be more.
    pub next: Option<RunCursor>,
}

impl Runtime {
    /// Searches for the live entities of a definition: those with commands that were not deleted. No run is woken.
    ///
    /// ```
    /// # use millrun::{Entity, EntityState, Runtime, RunError};
    /// # async fn all<S: EntityState>(runtime: &Runtime, cart: Entity<S>) -> Result<(), RunError> {
    /// let mut after = None;
    /// loop {
    ///     let page = runtime.entities(cart).prefix("eu-").page(after, 100).await?;
    ///     for key in page.keys {
    ///         println!("{key}");
    ///     }
    ///     after = page.next;
    ///     if after.is_none() {
    ///         return Ok(());
    ///     }
    /// }
    /// # }
    /// ```
    pub const fn entities<S: EntityState>(&self, entity: Entity<S>) -> EntitySearch<'_, S> {
        EntitySearch {
            runtime: self,
            entity,
            prefix: String::new(),
        }
    }
}

impl<S: EntityState> EntitySearch<'_, S> {
    /// Only those whose keys begin with this.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// A page of them, at most `len_max`, and at most 1,000.
    ///
    /// # Errors
    /// When the runtime has stopped.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn page(&self, after: Option<RunCursor>, len_max: usize) -> Result<EntitiesPage, RunError> {
        let mut search = RunSearch::new()
            .workflow(self.entity.name())
            .id_prefix(self.entity.id_of(&self.prefix));
        for status in [
            RunStatus::Running,
            RunStatus::Parked,
            RunStatus::Paused,
            RunStatus::NotRegistered,
        ] {
            search = search.status(status);
        }
        let page = self.runtime.find(&search, after, len_max).await?;
        let ids = page.runs.iter();
        let keys = ids.filter_map(|run| self.entity.key_of(run.id.as_str()).map(str::to_owned));
        Ok(EntitiesPage {
            keys: keys.collect(),
            next: page.next,
        })
    }
}
