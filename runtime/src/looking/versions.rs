//! The versions of workflows, and how many runs need each: this shows which code can be deleted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrun_core::Partition;
use millrun_workflow::VersionPolicy;

use crate::Runtime;
use crate::code::workflows::is_reserved;
use crate::looking::counts::WorkflowTally;
use crate::shared::ShardShared;

/// A version of a workflow that is registered, or that live runs have; returned by [`Runtime::versions`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkflowVersion {
    /// The name of the workflow.
    pub workflow: String,
    /// The number of the version; 0 for runs that record none.
    pub version: u32,
    /// Whether its code is registered in this program. If not, its live runs wait for it, or for a trial with the newest.
    pub is_registered: bool,
    /// Whether new runs get it.
    pub is_newest: bool,
    /// What happens to the runs of earlier versions; `None` if it is not the newest.
    pub policy: Option<VersionPolicy>,
    /// How many live runs have it.
    pub live: u64,
    /// How many of these are parked, or paused.
    pub parked: u64,
    /// Whether its code can be deleted: it is registered and not the newest, and no live run has it. Never true while this
    /// node owns only a part of the store, or while there are live runs whose workflow is unknown because their records are
    /// damaged.
    pub is_deletable: bool,
}

impl ShardShared {
    fn versions(&self) -> Vec<WorkflowVersion> {
        let mut versions: BTreeMap<(String, u32), WorkflowVersion> = BTreeMap::new();
        for code in self.workflows.all().filter(|code| !is_reserved(code.name())) {
            let newest = self.workflows.code_of(code.name());
            let is_newest = newest.is_some_and(|newest| newest.version() == code.version());
            let version = WorkflowVersion {
                is_registered: true,
                is_newest,
                policy: is_newest.then(|| code.version_policy()),
                ..WorkflowVersion::unregistered(code.name(), code.version())
            };
            versions.insert((code.name().to_owned(), code.version()), version);
        }
        let rows = self.tallies.rows();
        let is_known = |row: &&Arc<WorkflowTally>| !is_reserved(row.workflow()) && !row.workflow().is_empty();
        let live = |row: &WorkflowTally| told(row.live.load(Ordering::Relaxed));
        for row in rows.iter().filter(is_known).filter(|row| live(row) > 0) {
            let key = (row.workflow().to_owned(), row.version());
            let version = versions
                .entry(key)
                .or_insert_with(|| WorkflowVersion::unregistered(row.workflow(), row.version()));
            version.live = live(row);
            version.parked =
                told(row.parked.load(Ordering::Relaxed)) + told(row.paused.load(Ordering::Relaxed));
        }
        let is_unknown = |row: &Arc<WorkflowTally>| row.workflow().is_empty() && live(row) > 0;
        let owns_all = self.claims.owned().owned().count() == usize::from(Partition::COUNT);
        let knows_all = owns_all && !rows.iter().any(is_unknown);
        let with_verdict = versions.into_values().map(|version| WorkflowVersion {
            is_deletable: knows_all && version.is_registered && !version.is_newest && version.live == 0,
            ..version
        });
        with_verdict.collect()
    }
}

/// The value of a gauge: while a run moves between shards, these do not tell at the same time.
fn told(gauge: u64) -> u64 {
    if gauge > u64::MAX / 2 { 0 } else { gauge }
}

impl WorkflowVersion {
    fn unregistered(workflow: &str, version: u32) -> Self {
        Self {
            workflow: workflow.to_owned(),
            version,
            is_registered: false,
            is_newest: false,
            policy: None,
            live: 0,
            parked: 0,
            is_deletable: false,
        }
    }
}

impl Runtime {
    /// The versions of workflows that are registered or that live runs have, ordered by name, then by number. It shows which
    /// code can be deleted. For workflows that are not registered it lists up to 256 versions.
    ///
    /// ```
    /// # use millrun::{Runtime, Workflow, WorkflowContext, WorkflowError};
    /// const CHECKOUT: Workflow<u64, u64> = Workflow::named("checkout").version(2);
    /// const CHECKOUT_1: Workflow<u64, u64> = Workflow::named("checkout").version(1);
    ///
    /// # async fn checkout(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    /// #     Ok(number * 2)
    /// # }
    /// # async fn checkout_1(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    /// #     Ok(number)
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = Runtime::volatile().register(CHECKOUT, checkout);
    /// let runtime = builder.register(CHECKOUT_1, checkout_1).start().await?;
    /// let versions = runtime.versions();
    /// assert!(versions[0].version == 1 && versions[0].is_deletable);
    /// assert!(versions[1].version == 2 && versions[1].is_newest);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn versions(&self) -> Vec<WorkflowVersion> {
        self.inner().shared.versions()
    }
}
