//! The workflow of a bulk: some ids at a time, a pause, the next.

use std::time::Duration;

use millrun_workflow::{Query, WorkflowContext, WorkflowError};

use super::acts::{ACT, Act, Became, LOOK, Look};
use super::order::Order;
use super::{BULK_FAILURES_LEN_MAX, BulkFailure, BulkProgress};

pub(super) const PROGRESS: Query<BulkProgress, (), BulkProgress> = Query::named("progress");

/// How long an act on some runs may take before it is given up and repeated.
const ACT_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Behind how many acts a checkpoint bounds the history.
const CHECKPOINT_EVERY: usize = 32;

pub(super) async fn bulk(cx: WorkflowContext, order: Order) -> Result<BulkProgress, WorkflowError> {
    let begun = cx.checkpointed::<BulkProgress>().transpose()?;
    let progress = cx.state(begun.unwrap_or_else(|| BulkProgress {
        selected_len: order.ids.len() as u64,
        ..BulkProgress::default()
    }));
    let chunk_len = order.chunk_len();
    let pause = Duration::from_secs(1) * u32::try_from(chunk_len).unwrap_or(1) / order.per_second.max(1);
    let at = usize::try_from(progress.read(BulkProgress::looked_at_len)).unwrap_or(usize::MAX);
    let left = order.ids.get(at..).unwrap_or_default();
    let mut chunks = left.chunks(chunk_len).enumerate().peekable();
    while let Some((number, ids)) = chunks.next() {
        let look = Look {
            ids: ids.to_vec(),
            action: order.action.clone(),
        };
        let runs = cx.call(LOOK, look).await?;
        let act = Act {
            key: cx.run_id().to_string(),
            first: (at + number * chunk_len) as u64,
            runs,
            action: order.action.clone(),
        };
        let became = cx.call(ACT, act).start_to_close(ACT_TIMEOUT).await?;
        progress.change(|progress| note(progress, ids, became));
        if chunks.peek().is_none() {
            break;
        }
        cx.sleep(pause).await?;
        if (number + 1).is_multiple_of(CHECKPOINT_EVERY) {
            let come = progress.read(Clone::clone);
            return Ok(cx.checkpoint(&come).await?);
        }
    }
    Ok(progress.read(Clone::clone))
}

/// Counts what became of some ids.
fn note(progress: &mut BulkProgress, ids: &[String], became: Vec<Became>) {
    for (id, became) in ids.iter().zip(became) {
        match became {
            Became::Done => progress.done_len += 1,
            Became::PassedOver => progress.passed_over_len += 1,
            Became::Failed(message) => {
                progress.failed_len += 1;
                if progress.failures.len() < BULK_FAILURES_LEN_MAX {
                    let id = id.clone();
                    progress.failures.push(BulkFailure { id, message });
                }
            }
        }
    }
}
