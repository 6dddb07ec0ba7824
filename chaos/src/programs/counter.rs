//! Programs that take notes: counters, parents of counters, chains of runs, and keepers.

use futures_util::future::{join, join4};
use millrun::workflow::State;
use millrun::{WorkflowContext, WorkflowError};

use super::{CHILDREN, CLOSE, Input, Kind, LINK_LEN, NOTE, ProgramResult, Sheet};
use crate::programs::steps;

/// Takes notes until one says that it is over. Nothing keeps it from taking a note at once, so that an
/// acknowledged one has been taken.
async fn take_notes(cx: &WorkflowContext, sheet: &State<Sheet>) -> Result<(), WorkflowError> {
    loop {
        let note = cx.receive(NOTE).await?;
        let now = cx.now();
        sheet.change(|sheet| sheet.see(now));
        if note == CLOSE {
            return Ok(());
        }
        sheet.change(|sheet| sheet.note(note));
    }
}

/// Notes, with `len` steps in sequence beside.
pub(crate) async fn counter(cx: WorkflowContext, input: Input) -> Result<ProgramResult, WorkflowError> {
    let sheet = cx.state(Sheet::default());
    let (noted, tokens) = join(take_notes(&cx, &sheet), steps::in_sequence(&cx, &input)).await;
    noted?;
    Ok(ProgramResult {
        tokens: tokens?,
        ..sheet.read(Sheet::outcome)
    })
}

/// Three counters as children, and notes of its own.
pub(crate) async fn parent(cx: WorkflowContext, input: Input) -> Result<ProgramResult, WorkflowError> {
    let sheet = cx.state(Sheet::default());
    let child = |number: usize| {
        let id = child_id(&input.id, number);
        let given = Input {
            id: id.clone(),
            len: input.len,
            sheet: Sheet::default(),
        };
        cx.child(Kind::Counter.workflow(), id, given)
    };
    let (noted, first, second, third) = join4(take_notes(&cx, &sheet), child(0), child(1), child(2)).await;
    noted?;
    Ok(ProgramResult {
        children: vec![first?, second?, third?],
        ..sheet.read(Sheet::outcome)
    })
}

/// The id of a parent's child.
pub(crate) fn child_id(parent: &str, number: usize) -> String {
    debug_assert!(number < CHILDREN);
    format!("{parent}/{number}")
}

/// Goes on in another run after every few notes, as this program.
pub(crate) async fn chain(
    cx: WorkflowContext,
    input: Input,
    next_kind: Kind,
) -> Result<ProgramResult, WorkflowError> {
    let sheet = cx.state(input.sheet.clone());
    for _ in 0..LINK_LEN {
        let note = cx.receive(NOTE).await?;
        let now = cx.now();
        sheet.change(|sheet| sheet.see(now));
        if note == CLOSE {
            return Ok(sheet.read(Sheet::outcome));
        }
        sheet.change(|sheet| sheet.note(note));
    }
    let next = Input {
        sheet: sheet.read(Sheet::clone),
        ..input
    };
    Ok(cx.continue_as_new(next_kind.workflow(), next).await?)
}

/// Begins again from its sheet after every few notes.
pub(crate) async fn keeper(cx: WorkflowContext, input: Input) -> Result<ProgramResult, WorkflowError> {
    let sheet = cx.state(cx.checkpointed().transpose()?.unwrap_or(input.sheet));
    for _ in 0..LINK_LEN {
        let note = cx.receive(NOTE).await?;
        let now = cx.now();
        sheet.change(|sheet| sheet.see(now));
        if note == CLOSE {
            return Ok(sheet.read(Sheet::outcome));
        }
        sheet.change(|sheet| sheet.note(note));
    }
    let kept = sheet.read(Sheet::clone);
    Ok(cx.checkpoint(&kept).await?)
}
