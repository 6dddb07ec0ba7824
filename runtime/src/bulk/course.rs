//! The workflow of a bulk: it acts on some instances, pauses, and goes on.

use std::time::Duration;

use millrun_workflow::{Query, WorkflowContext, WorkflowError};
use serde::{Deserialize, Serialize};

use super::action::ActionKind;
use super::acts::{ACT, Act, Became};
use super::order::{Order, StoredDescription, StoredSearch};
use super::selecting::{BulkTarget, COUNT, CountRuns, LOOK, Look, SELECT, Select};
use super::{BULK_FAILURES_LEN_MAX, BulkAction, BulkFailure, BulkProgress};

pub(super) const PROGRESS: Query<Course, (), BulkProgress> = Query::named("progress");
pub(super) const DESCRIBED: Query<Course, (), StoredDescription> = Query::named("described");

/// How long a count, a selection or an action on some runs may take until it is repeated.
const ACT_TIMEOUT: Duration = Duration::from_secs(3_600);

/// After how many actions a checkpoint bounds the history.
const CHECKPOINT_EVERY: usize = 32;

/// The progress of a bulk, which its checkpoints contain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Course {
    pub(super) described: StoredDescription,
    pub(super) progress: BulkProgress,
    /// The number of ids that have been taken.
    ids_taken_len: u64,
    search: SearchPlace,
}

/// The progress of the search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum SearchPlace {
    /// Its result has not been counted yet.
    Uncounted,
    /// The next selection begins behind this cursor, or with the first run.
    Behind(Option<String>),
    /// Everything has been selected, or there is no search.
    Over,
}

impl Course {
    fn of(order: &Order) -> Self {
        let progress = BulkProgress {
            selected_len: order.ids.len() as u64,
            ..BulkProgress::default()
        };
        let search = match order.search {
            Some(_) => SearchPlace::Uncounted,
            None => SearchPlace::Over,
        };
        Self {
            described: order.description(),
            progress,
            ids_taken_len: 0,
            search,
        }
    }

    fn ids_left<'a>(&self, order: &'a Order) -> &'a [String] {
        let taken_len = usize::try_from(self.ids_taken_len).unwrap_or(usize::MAX);
        order.ids.get(taken_len..).unwrap_or_default()
    }

    fn is_over(&self, order: &Order) -> bool {
        self.ids_left(order).is_empty() && self.search == SearchPlace::Over
    }

    /// Counts the results for some targets.
    fn note(&mut self, targets: &[BulkTarget], became: Vec<Became>) {
        let progress = &mut self.progress;
        for (target, became) in targets.iter().zip(became) {
            match became {
                Became::Done => progress.done_len += 1,
                Became::PassedOver => progress.passed_over_len += 1,
                Became::Failed(message) => {
                    progress.failed_len += 1;
                    if progress.failures.len() < BULK_FAILURES_LEN_MAX {
                        let id = target.id.clone();
                        progress.failures.push(BulkFailure { id, message });
                    }
                }
            }
        }
        // More runs match the filter than when it was counted.
        progress.selected_len = progress.selected_len.max(progress.looked_at_len());
    }
}

pub(super) async fn bulk(cx: WorkflowContext, order: Order) -> Result<BulkProgress, WorkflowError> {
    let begun = cx.checkpointed::<Course>().transpose()?;
    let course = cx.state(begun.unwrap_or_else(|| Course::of(&order)));
    let chunk_len = order.chunk_len();
    let pause = Duration::from_secs(1) * u32::try_from(chunk_len).unwrap_or(1) / order.per_second.max(1);
    let kind = BulkAction::from(order.action.clone()).kind();
    // A run's id has milliseconds, so runs that began in the bulk's millisecond are included.
    let started_before_us = cx.run_id().started().as_micros() + 1;
    let mut acts_len = 0;
    while !course.read(|course| course.is_over(&order)) {
        let ids = course.read(|course| course.ids_left(&order));
        let ids = &ids[..ids.len().min(chunk_len)];
        let place = course.read(|course| course.search.clone());
        let targets = match (&order.search, place) {
            _ if !ids.is_empty() => {
                let look = Look {
                    ids: ids.to_vec(),
                    action: kind,
                };
                let targets = cx.call(LOOK, look).start_to_close(ACT_TIMEOUT).await?;
                course.change(|course| course.ids_taken_len += ids.len() as u64);
                targets
            }
            (Some(search), SearchPlace::Uncounted) => {
                let count = CountRuns {
                    search: search.clone(),
                    action: kind,
                    started_before_us,
                };
                let counted = cx.call(COUNT, count).start_to_close(ACT_TIMEOUT).await?;
                course.change(|course| {
                    course.progress.selected_len += counted;
                    course.search = SearchPlace::Behind(None);
                });
                continue;
            }
            (Some(search), SearchPlace::Behind(after)) => {
                let select = next_of(search, kind, after, chunk_len, started_before_us);
                let selected = cx.call(SELECT, select).start_to_close(ACT_TIMEOUT).await?;
                course.change(|course| {
                    course.progress.failed_len += selected.unreadable;
                    course.search = match selected.next {
                        Some(next) => SearchPlace::Behind(Some(next)),
                        None => SearchPlace::Over,
                    };
                });
                selected.targets
            }
            (Some(_), SearchPlace::Over) | (None, _) => break,
        };
        let is_some = !targets.is_empty();
        if is_some {
            let act = Act {
                key: cx.run_id().to_string(),
                targets: targets.clone(),
                action: order.action.clone(),
            };
            let became = cx.call(ACT, act).start_to_close(ACT_TIMEOUT).await?;
            course.change(|course| course.note(&targets, became));
        }
        if course.read(|course| course.is_over(&order)) {
            break;
        }
        if is_some {
            cx.sleep(pause).await?;
        }
        acts_len += 1;
        if acts_len == CHECKPOINT_EVERY {
            let come = course.read(Clone::clone);
            return Ok(cx.checkpoint(&come).await?);
        }
    }
    Ok(course.read(|course| course.progress.clone()))
}

fn next_of(
    search: &StoredSearch,
    action: ActionKind,
    after: Option<String>,
    len_max: usize,
    started_before_us: u64,
) -> Select {
    Select {
        search: search.clone(),
        action,
        after,
        len_max: len_max as u64,
        started_before_us,
    }
}
