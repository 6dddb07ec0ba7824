//! The decisions of a schedule's run: at due times, at commands, and when a run that it has started has ended.
//!
//! ```text
//!   timer FIRE ──► catch_up ─┬─ behind the window, or too many ──► missed
//!                            └─ take ─┬─ nothing is waited for, or allow ──► start
//!                                     └─ else the policy: skip, buffer, or have the other stopped and wait
//!   ENDED ───────► the next that waits ──► start
//!   REFUSED ─────► a start did not come about: as ended
//!   CHECK ───────► is the run that others wait for still followed? (following.rs)
//! ```
//!
//! Each decision is an event, made once. So zone data is only read here, its results are in the history, and a replay folds
//! them, whatever zone data it has. A start is in the commit of the turn that decides it.

use std::collections::VecDeque;
use std::time::Duration;

use millrun_core::Timestamp;
use millrun_workflow::{Entity, EntityCode, EntityCommand, EntityContext, Payload, Query, StartRefused};
use serde::{Deserialize, Serialize};

use super::error::ScheduleRejection;
use super::following::{
    CANCEL_OTHER, CHECK_OTHER, CheckOrder, FOLLOW, FollowOrder, MESSAGE_BYTES_MAX, StopOrder, TERMINATE_OTHER,
};
use super::state::{
    BackfillOrder, NextAction, Occasion, ScheduleAction, ScheduleEvent, ScheduleProgress, ScheduleState,
};
use super::times::{DueTimes, StoredSchedule, jitter_of};
use super::{ActionEnd, BACKFILL_LEN_MAX, BACKFILLS_LEN_MAX, OverlapPolicy, zone};
use crate::builtin::{id_of, name_of};
use crate::code::workflows::is_reserved;
use crate::looking::changes::cut_to;

pub(super) const SCHEDULE: Entity<ScheduleState> = Entity::named("millrun.schedule");

pub(super) const MAKE: EntityCommand<ScheduleState, MakeOrder, (), ScheduleRejection> =
    EntityCommand::named("make");
pub(super) const UPDATE: EntityCommand<ScheduleState, StoredSchedule, (), ScheduleRejection> =
    EntityCommand::named("update");
pub(super) const PAUSE: EntityCommand<ScheduleState, String, (), ScheduleRejection> =
    EntityCommand::named("pause");
pub(super) const RESUME: EntityCommand<ScheduleState, String, (), ScheduleRejection> =
    EntityCommand::named("resume");
pub(super) const TRIGGER: EntityCommand<ScheduleState, Option<OverlapPolicy>, String, ScheduleRejection> =
    EntityCommand::named("trigger");
pub(super) const BACKFILL: EntityCommand<ScheduleState, BackfillAsked, (), ScheduleRejection> =
    EntityCommand::named("backfill");
pub(super) const ENDED: EntityCommand<ScheduleState, EndedOrder, (), ScheduleRejection> =
    EntityCommand::named("ended");
const REFUSED: EntityCommand<ScheduleState, StartRefused, (), ScheduleRejection> =
    EntityCommand::named("refused");
const CHECK: EntityCommand<ScheduleState, (), (), ScheduleRejection> = EntityCommand::named("check");
const FIRE: EntityCommand<ScheduleState, (), (), ScheduleRejection> = EntityCommand::named("fire");
const GO_ON: EntityCommand<ScheduleState, (), (), ScheduleRejection> = EntityCommand::named("go-on");

pub(super) const VIEW: Query<ScheduleState, (), ScheduleView> = Query::named("view");

/// How many actions one turn takes at most; the next turn follows at once.
const ACTIONS_PER_TURN_MAX: usize = 16;

/// After how many bytes of inputs a turn takes no further action.
const INPUT_BYTES_PER_TURN: usize = 256 * 1_024;

/// How many of the permitted outstanding operations a turn leaves free: for what an action may begin (a run, the stop of
/// another, a check), and for the timers.
const SPARE_OPERATIONS: usize = 8;

/// How long a schedule waits when it has as many operations outstanding as it may.
const REST: Duration = Duration::from_secs(1);

/// After how long it is first checked whether the run that something waits for is still followed; each further check comes
/// after twice the time, up to the longest.
const CHECK_AFTER: Duration = Duration::from_secs(60);
const CHECK_AFTER_MAX: Duration = Duration::from_secs(3_600);

/// How many passed due times are looked at one by one; between them and the latest ones, others are skipped without being
/// counted.
const WALK_LEN_MAX: u64 = 10_000;

/// How far ahead of the clock the last used due time may be. Within this, a clock that was set back does not use a due time
/// twice. Beyond it, the clock was wrong then, and due times count from the present time.
const SET_BACK_MAX_US: u64 = 86_400 * 1_000_000;

/// How long a schedule waits whose zone or lines this program cannot read.
const UNREADABLE_REST: Duration = Duration::from_secs(3_600);

/// How many of the next due times a schedule shows.
pub(super) const UPCOMING_LEN: usize = 10;

/// After how many commands the run of a schedule makes a snapshot: for a due time, a sleeping schedule reads the events
/// behind it.
const SNAPSHOT_EVERY: u32 = 32;

/// A schedule that is to be made.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MakeOrder {
    pub(super) schedule: StoredSchedule,
    /// The note of its pause, if it begins paused.
    pub(super) paused: Option<String>,
}

/// The past due times to be made up for, both ends included.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct BackfillAsked {
    pub(super) from_us: u64,
    pub(super) through_us: u64,
    pub(super) overlap: Option<OverlapPolicy>,
}

/// A run that was waited for has ended.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct EndedOrder {
    pub(super) action: ScheduleAction,
    pub(super) end: ActionEnd,
}

/// The description of a schedule, without its input.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ScheduleView {
    pub(super) described: Option<StoredSchedule>,
    pub(super) progress: ScheduleProgress,
    pub(super) upcoming_us: Vec<u64>,
    /// Why it is not due, if this program cannot read its times.
    pub(super) resting: Option<String>,
}

type ScheduleContext<'a> = EntityContext<'a, ScheduleState>;
type Decided<T = ()> = Result<T, ScheduleRejection>;

/// The code of schedules.
pub(super) fn code() -> EntityCode<ScheduleState> {
    SCHEDULE
        .command(MAKE, make)
        .command(UPDATE, update)
        .command(PAUSE, pause)
        .command(RESUME, resume)
        .command(TRIGGER, trigger)
        .command(BACKFILL, backfill)
        .command(ENDED, ended)
        .command(REFUSED, refused)
        .on_start_refused(REFUSED)
        .command(CHECK, check)
        .command(FIRE, |state, (), cx: &mut ScheduleContext<'_>| {
            let mut schedule = Deciding::of(state, cx)?;
            schedule.catch_up();
            Ok(())
        })
        .command(GO_ON, |state, (), cx: &mut ScheduleContext<'_>| {
            let mut schedule = Deciding::of(state, cx)?;
            schedule.fill_back();
            Ok(())
        })
        .query(VIEW, |state, ()| view(state))
        .snapshot_every(SNAPSHOT_EVERY)
}

fn make(state: &ScheduleState, order: MakeOrder, cx: &mut ScheduleContext<'_>) -> Decided {
    match &state.described {
        Some(described) if *described == order.schedule => return Ok(()),
        Some(_) => return Err(ScheduleRejection::Differs),
        None => {}
    }
    describe(state, order.schedule, order.paused, cx)
}

fn update(state: &ScheduleState, schedule: StoredSchedule, cx: &mut ScheduleContext<'_>) -> Decided {
    match &state.described {
        None => Err(ScheduleRejection::NotFound),
        Some(described) if *described == schedule => Ok(()),
        Some(_) => describe(state, schedule, None, cx),
    }
}

fn describe(
    state: &ScheduleState,
    schedule: StoredSchedule,
    paused: Option<String>,
    cx: &mut ScheduleContext<'_>,
) -> Decided {
    let now_us = cx.host_now().as_micros();
    let due_times = schedule.due_times();
    if due_times.next_behind(now_us).is_none() {
        return Err(ScheduleRejection::NeverDue);
    }
    let former = state.described.as_ref().unwrap_or(&schedule);
    let mut deciding = Deciding::with(former, state.progress.clone(), cx);
    // Due times that have come are used, although the description changes from now on.
    let (come, _) = deciding.come(true);
    deciding.put_off(come);
    (deciding.schedule, deciding.due_times) = (&schedule, due_times);
    deciding.emit(ScheduleEvent::Described {
        schedule: Box::new(schedule.clone()),
        at_us: now_us,
    });
    if let Some(note) = paused {
        deciding.emit(ScheduleEvent::Paused { note });
    }
    deciding.plan_from_now();
    deciding.act();
    Ok(())
}

fn pause(state: &ScheduleState, note: String, cx: &mut ScheduleContext<'_>) -> Decided {
    let mut schedule = Deciding::of(state, cx)?;
    // Due times that have come are used when it is resumed.
    let (come, _) = schedule.come(true);
    schedule.put_off(come);
    schedule.emit(ScheduleEvent::Paused { note });
    schedule.emit(ScheduleEvent::Planned(None));
    schedule.set_timer();
    Ok(())
}

fn resume(state: &ScheduleState, note: String, cx: &mut ScheduleContext<'_>) -> Decided {
    let mut schedule = Deciding::of(state, cx)?;
    if schedule.progress.paused.is_none() {
        return Ok(());
    }
    schedule.emit(ScheduleEvent::Resumed { note });
    schedule.plan_from_now();
    schedule.act();
    Ok(())
}

fn trigger(
    state: &ScheduleState,
    overlap: Option<OverlapPolicy>,
    cx: &mut ScheduleContext<'_>,
) -> Decided<String> {
    let mut schedule = Deciding::of(state, cx)?;
    let action = ScheduleAction {
        occasion: Occasion::Triggered(schedule.progress.triggers_len + 1),
        due_us: schedule.now_us(),
    };
    schedule.take(action, overlap);
    Ok(action.run_id(schedule.cx.key()))
}

fn backfill(state: &ScheduleState, asked: BackfillAsked, cx: &mut ScheduleContext<'_>) -> Decided {
    let mut schedule = Deciding::of(state, cx)?;
    let BackfillAsked {
        from_us,
        through_us,
        overlap,
    } = asked;
    if from_us > through_us {
        return Err(ScheduleRejection::EmptyBackfill);
    }
    if schedule.progress.backfills.len() >= BACKFILLS_LEN_MAX {
        return Err(ScheduleRejection::TooManyBackfills);
    }
    let through_us = through_us.min(schedule.now_us());
    let after_us = from_us.saturating_sub(1);
    let mut due_us = after_us;
    for len in 0..=BACKFILL_LEN_MAX {
        match schedule.due_times.next_behind(due_us) {
            Some(next_us) if next_us <= through_us => due_us = next_us,
            _ => break,
        }
        if len == BACKFILL_LEN_MAX {
            return Err(ScheduleRejection::BackfillTooLong);
        }
    }
    // A number that no former schedule with this id has used, since runs of its backfills may be alive.
    let number = schedule
        .now_us()
        .max(schedule.progress.backfill.saturating_add(1));
    schedule.emit(ScheduleEvent::BackfillAsked(BackfillOrder {
        number,
        after_us,
        through_us,
        overlap,
        left: BACKFILL_LEN_MAX,
    }));
    schedule.fill_back();
    Ok(())
}

fn ended(state: &ScheduleState, order: EndedOrder, cx: &mut ScheduleContext<'_>) -> Decided {
    let mut schedule = Deciding::of(state, cx)?;
    let EndedOrder { action, end } = order;
    // It may be a repetition.
    if schedule.progress.running != Some(action) {
        return Ok(());
    }
    schedule.end(action, end);
    Ok(())
}

/// A start was refused.
fn refused(state: &ScheduleState, refused: StartRefused, cx: &mut ScheduleContext<'_>) -> Decided {
    let mut schedule = Deciding::of(state, cx)?;
    let message = cut_to(refused.message, MESSAGE_BYTES_MAX);
    let end = ActionEnd::NotStarted { message };
    if let Some(id) = name_of(FOLLOW.name(), &refused.id) {
        let running = schedule.progress.running;
        if let Some(action) = running.filter(|action| action.run_id(schedule.cx.key()) == id) {
            schedule.end(action, end);
        }
        return Ok(());
    }
    // The run is being stopped or checked already; otherwise the next due time asks for that again.
    if is_reserved(&refused.workflow) {
        return Ok(());
    }
    let key = schedule.cx.key();
    let mut recent = schedule.progress.recent.iter().rev();
    let recent = recent.find(|recent| recent.end.is_none() && recent.action.run_id(key) == refused.id);
    let event = match recent.map(|recent| recent.action) {
        Some(action) => ScheduleEvent::Ended { action, end },
        None => ScheduleEvent::NotStarted,
    };
    schedule.emit(event);
    Ok(())
}

/// Checks whether the run that something waits for is still followed.
fn check(state: &ScheduleState, (): (), cx: &mut ScheduleContext<'_>) -> Decided {
    let mut schedule = Deciding::of(state, cx)?;
    schedule.emit(ScheduleEvent::Checked);
    let Some(action) = schedule.progress.running else {
        return Ok(());
    };
    let id = action.run_id(schedule.cx.key());
    let order = CheckOrder {
        schedule: schedule.cx.key().to_owned(),
        action,
        workflow: schedule.schedule.workflow.clone(),
        id: id.clone(),
    };
    schedule
        .cx
        .start(CHECK_OTHER, id_of(CHECK_OTHER.name(), &id), order);
    if !schedule.progress.waiting.is_empty() || !schedule.progress.backfills.is_empty() {
        schedule.plan_check();
    }
    Ok(())
}

fn view(state: &ScheduleState) -> ScheduleView {
    let mut upcoming_us = Vec::new();
    if let (Some(described), Some(next)) = (&state.described, &state.progress.next) {
        let due_times = described.due_times();
        upcoming_us.push(next.due_us);
        while upcoming_us.len() < UPCOMING_LEN
            && let Some(due_us) = due_times.next_behind(upcoming_us[upcoming_us.len() - 1])
        {
            upcoming_us.push(due_us);
        }
    }
    let unreadable = |described: &StoredSchedule| described.due_times().unreadable().map(str::to_owned);
    let resting = state.described.as_ref().and_then(unreadable);
    let described = state.described.clone().map(|described| StoredSchedule {
        input: Vec::new(),
        ..described
    });
    ScheduleView {
        described,
        progress: state.progress.clone(),
        upcoming_us,
        resting,
    }
}

/// A schedule while it decides: each decision is folded at once, so that the next one sees it.
struct Deciding<'a, 'b, 'c> {
    schedule: &'a StoredSchedule,
    due_times: DueTimes,
    progress: ScheduleProgress,
    cx: &'b mut ScheduleContext<'c>,
    actions_len: usize,
    input_bytes: usize,
}

impl<'a, 'b, 'c> Deciding<'a, 'b, 'c> {
    fn of(state: &'a ScheduleState, cx: &'b mut ScheduleContext<'c>) -> Decided<Self> {
        let schedule = state.described.as_ref().ok_or(ScheduleRejection::NotFound)?;
        Ok(Self::with(schedule, state.progress.clone(), cx))
    }

    fn with(
        schedule: &'a StoredSchedule,
        progress: ScheduleProgress,
        cx: &'b mut ScheduleContext<'c>,
    ) -> Self {
        Self {
            due_times: schedule.due_times(),
            schedule,
            progress,
            cx,
            actions_len: 0,
            input_bytes: 0,
        }
    }

    fn now_us(&self) -> u64 {
        self.cx.host_now().as_micros()
    }

    fn emit(&mut self, event: ScheduleEvent) {
        self.progress.apply(&event);
        self.cx.emit(event);
    }

    /// Computes the next due time from now on. No due time is used twice, unless the clock was wrong when it was used.
    fn plan_from_now(&mut self) {
        let (now_us, reached_us) = (self.now_us(), self.progress.reached_us);
        let was_set_back = reached_us > now_us.saturating_add(SET_BACK_MAX_US);
        self.plan(if was_set_back {
            now_us
        } else {
            now_us.max(reached_us)
        });
    }

    /// Computes the next due time behind this one.
    fn plan(&mut self, after_us: u64) {
        if self.due_times.unreadable().is_some() {
            return;
        }
        let may_act = self.progress.paused.is_none() && self.progress.actions_left != Some(0);
        let due_us = may_act.then(|| self.due_times.next_behind(after_us)).flatten();
        let next = due_us.map(|due_us| NextAction {
            due_us,
            at_us: due_us.saturating_add(self.jitter(due_us)),
            zone_data: zone::zone_data_version().to_owned(),
        });
        if next.is_some() || self.progress.next.is_some() {
            self.emit(ScheduleEvent::Planned(next));
        }
    }

    /// The jitter of a due time; it ends before the next due time.
    fn jitter(&self, due_us: u64) -> u64 {
        let mut jitter_us = self.schedule.jitter_us;
        if jitter_us == 0 {
            return 0;
        }
        if let Some(next_us) = self.due_times.next_behind(due_us) {
            jitter_us = jitter_us.min(next_us - due_us);
        }
        jitter_of(self.cx.key(), due_us, jitter_us)
    }

    /// Wakes the run at the next due time, or at once if that has come.
    fn set_timer(&mut self) {
        let is_paused = self.progress.paused.is_some();
        let is_behind = !is_paused && !self.progress.backlog.is_empty();
        match &self.progress.next {
            _ if !is_paused && self.due_times.unreadable().is_some() => {
                self.cx.set_timer_in(FIRE, UNREADABLE_REST);
            }
            _ if is_behind => {
                let pause = self.pause();
                self.cx.set_timer_in(FIRE, pause);
            }
            Some(next) => {
                let at = Timestamp::from_micros(next.at_us);
                let pause = self.pause();
                self.cx.set_timer(FIRE, at.max(self.cx.host_now() + pause));
            }
            None => self.cx.clear_timer(FIRE),
        }
    }

    /// How long the next turn waits, which uses due times that have come.
    fn pause(&self) -> Duration {
        if self.cx.operations_left() > SPARE_OPERATIONS {
            Duration::ZERO
        } else {
            REST
        }
    }

    /// Whether this turn may take another action.
    fn has_room(&self) -> bool {
        self.actions_len < ACTIONS_PER_TURN_MAX
            && self.input_bytes < INPUT_BYTES_PER_TURN
            && self.cx.operations_left() > SPARE_OPERATIONS
    }

    /// The run of an action has ended: what waits for that continues.
    fn end(&mut self, action: ScheduleAction, end: ActionEnd) {
        if self.progress.check_at_us.is_some() {
            self.cx.clear_timer(CHECK);
        }
        self.emit(ScheduleEvent::Ended { action, end });
        if let Some(action) = self.progress.waiting.front().copied() {
            self.start(action, true);
        }
        self.fill_back();
    }

    /// Plans a check for a run whose end something waits for: the workflow that follows the run may have been terminated.
    fn plan_check(&mut self) {
        if self.progress.check_at_us.is_none() {
            let after = CHECK_AFTER.saturating_mul(1 << self.progress.checks_len.min(16));
            let at = self.cx.host_now() + after.min(CHECK_AFTER_MAX);
            self.cx.set_timer(CHECK, at);
            let at_us = at.as_micros();
            self.emit(ScheduleEvent::CheckPlanned { at_us });
        }
    }

    /// Uses postponed due times, then those that have come, then those of backfills.
    fn act(&mut self) {
        self.catch_up();
        self.fill_back();
    }

    /// Uses the due times that have come.
    fn catch_up(&mut self) {
        if self.progress.paused.is_some() || self.due_times.unreadable().is_some() {
            self.set_timer();
            return;
        }
        if self.progress.next.is_none() && self.progress.actions_left != Some(0) {
            // It may have waited.
            self.plan_from_now();
        }
        let (come, after_us) = self.come(false);
        if self.progress.backlog.is_empty() && come.len() <= ACTIONS_PER_TURN_MAX && self.has_room() {
            come.into_iter().for_each(|due_us| self.take_due(due_us));
        } else {
            self.put_off(come);
            while self.has_room()
                && let Some(due_us) = self.progress.backlog.front().copied()
            {
                self.take_due(due_us);
            }
        }
        if self.progress.actions_left == Some(0) {
            self.put_off(VecDeque::new());
        }
        if let Some(after_us) = after_us {
            self.plan(after_us);
        }
        self.set_timer();
    }

    /// Uses a due time that has come.
    fn take_due(&mut self, due_us: u64) {
        if self.progress.actions_left == Some(0) {
            if !self.progress.backlog.is_empty() {
                self.emit(ScheduleEvent::BacklogDropped { len: 1 });
            }
            return;
        }
        if self.now_us().saturating_sub(due_us) > self.schedule.catch_up_us {
            if !self.progress.backlog.is_empty() {
                self.emit(ScheduleEvent::BacklogDropped { len: 1 });
            }
            let (len, through_us) = (1, due_us);
            self.emit(ScheduleEvent::Missed { len, through_us });
            return;
        }
        let occasion = Occasion::Due;
        self.take(ScheduleAction { occasion, due_us }, None);
    }

    /// The due times that have come, in order, and the last that was looked at; with `if_jittered`, also if their jitter has
    /// not passed. Those before the catch-up window are missed; if there are more than may be caught up with, so are the
    /// oldest.
    fn come(&mut self, if_jittered: bool) -> (VecDeque<u64>, Option<u64>) {
        let now_us = self.now_us();
        let mut come = VecDeque::new();
        let Some(next) = &self.progress.next else {
            return (come, None);
        };
        if next.due_us > now_us || !if_jittered && next.at_us > now_us {
            return (come, None);
        }
        let first_us = next.due_us;
        let len_max = usize::try_from(self.schedule.catch_up_len_max).unwrap_or(usize::MAX);
        let window_us = now_us.saturating_sub(self.schedule.catch_up_us);
        let (mut missed_len, mut through_us) = (0, 0);
        let (mut due_us, mut walked_len) = (first_us, 0);
        loop {
            if due_us < window_us {
                (missed_len, through_us) = (missed_len + 1, due_us);
            } else {
                come.push_back(due_us);
            }
            if come.len() > len_max {
                through_us = come.pop_front().unwrap_or(due_us);
                missed_len += 1;
            }
            walked_len += 1;
            let after_us = match walked_len {
                WALK_LEN_MAX => self.last_of_many(first_us, due_us, now_us),
                _ => due_us,
            };
            match self.due_times.next_behind(after_us) {
                Some(next_us) if walked_len >= 2 * WALK_LEN_MAX || next_us > now_us => break,
                Some(next_us) => {
                    let jitter_us = if if_jittered { 0 } else { self.jitter(next_us) };
                    if next_us.saturating_add(jitter_us) > now_us {
                        break;
                    }
                    due_us = next_us;
                }
                None => break,
            }
        }
        if missed_len > 0 {
            let len = missed_len;
            self.emit(ScheduleEvent::Missed { len, through_us });
        }
        (come, Some(due_us))
    }

    /// Where to begin looking at the latest due times, of many that have come: as far back as these took so far, for half as
    /// many.
    fn last_of_many(&self, first_us: u64, due_us: u64, now_us: u64) -> u64 {
        let each_us = (due_us - first_us) / WALK_LEN_MAX;
        let back_us = each_us.saturating_mul(WALK_LEN_MAX / 2);
        due_us.max(now_us.saturating_sub(back_us))
    }

    /// Postpones due times that have come. If there are more than may be caught up with, the oldest are missed.
    fn put_off(&mut self, come: VecDeque<u64>) {
        if self.progress.actions_left == Some(0) {
            let len = self.progress.backlog.len();
            if len > 0 {
                self.emit(ScheduleEvent::BacklogDropped { len });
            }
            return;
        }
        if come.is_empty() {
            return;
        }
        self.emit(ScheduleEvent::Backlogged(come.into()));
        let len_max = usize::try_from(self.schedule.catch_up_len_max).unwrap_or(usize::MAX);
        let backlog = &self.progress.backlog;
        if let Some(len) = backlog.len().checked_sub(len_max).filter(|len| *len > 0) {
            let through_us = backlog[len - 1];
            self.emit(ScheduleEvent::BacklogDropped { len });
            let len = len as u64;
            self.emit(ScheduleEvent::Missed { len, through_us });
        }
    }

    /// Takes an action, unless a running one forbids it.
    fn take(&mut self, action: ScheduleAction, overlap: Option<OverlapPolicy>) {
        self.actions_len += 1;
        let overlap = overlap.unwrap_or(self.schedule.overlap);
        let waiting_len = self.progress.waiting.len();
        match (overlap, self.progress.running) {
            (OverlapPolicy::Allow, _) => self.start(action, false),
            (_, None) => self.start(action, true),
            (OverlapPolicy::Skip, Some(_)) => {
                self.emit(ScheduleEvent::Skipped(action));
                self.plan_check();
            }
            (OverlapPolicy::BufferOne | OverlapPolicy::BufferAll, Some(_)) => {
                if waiting_len < self.buffer_len(overlap) {
                    self.emit(ScheduleEvent::Buffered(action));
                } else {
                    self.emit(ScheduleEvent::Skipped(action));
                }
                self.plan_check();
            }
            (OverlapPolicy::CancelOther | OverlapPolicy::TerminateOther, Some(other)) => {
                if waiting_len > 0 {
                    let len = waiting_len as u64;
                    self.emit(ScheduleEvent::Replaced { len });
                }
                self.emit(ScheduleEvent::Buffered(action));
                self.stop(other, overlap);
                self.plan_check();
            }
        }
    }

    /// How many actions may wait.
    fn buffer_len(&self, overlap: OverlapPolicy) -> usize {
        match overlap {
            OverlapPolicy::BufferOne => 1,
            _ => usize::try_from(self.schedule.buffer_len_max).unwrap_or(usize::MAX),
        }
    }

    fn start(&mut self, action: ScheduleAction, is_followed: bool) {
        let id = action.run_id(self.cx.key());
        let (workflow, input) = (self.schedule.workflow.clone(), self.schedule.input.clone());
        self.input_bytes += input.len();
        if is_followed {
            let order = FollowOrder {
                schedule: self.cx.key().to_owned(),
                action,
                workflow,
                id: id.clone(),
                input,
            };
            self.cx.start(FOLLOW, id_of(FOLLOW.name(), &id), order);
        } else {
            self.cx
                .start_untyped(workflow, id, Payload::from_bytes(input.into()));
        }
        self.emit(ScheduleEvent::Started {
            action,
            at_us: self.now_us(),
            is_followed,
        });
    }

    /// Stops the run of an action. A repetition has no effect: the id is taken.
    fn stop(&mut self, action: ScheduleAction, overlap: OverlapPolicy) {
        let workflow = match overlap {
            OverlapPolicy::TerminateOther => TERMINATE_OTHER,
            _ => CANCEL_OTHER,
        };
        let id = action.run_id(self.cx.key());
        let order = StopOrder {
            schedule: self.cx.key().to_owned(),
            id: id.clone(),
        };
        self.cx.start(workflow, id_of(workflow.name(), &id), order);
    }

    /// Uses the due times of backfills.
    fn fill_back(&mut self) {
        while self.due_times.unreadable().is_none()
            && let Some(order) = self.progress.backfills.front().cloned()
        {
            if !self.has_room() {
                let pause = self.pause();
                self.cx.set_timer_in(GO_ON, pause);
                return;
            }
            let overlap = order.overlap.unwrap_or(self.schedule.overlap);
            let is_buffering = matches!(overlap, OverlapPolicy::BufferOne | OverlapPolicy::BufferAll);
            // It waits here, so that the buffer stays free for regular due times.
            if is_buffering && self.progress.running.is_some() {
                // It continues when the running action has ended.
                self.plan_check();
                return;
            }
            match self.due_times.next_behind(order.after_us) {
                Some(due_us) if due_us <= order.through_us && order.left > 0 => {
                    let action = ScheduleAction {
                        occasion: Occasion::Backfilled(order.number),
                        due_us,
                    };
                    self.take(action, Some(overlap));
                    self.emit(ScheduleEvent::BackfillReached { after_us: due_us });
                }
                _ => self.emit(ScheduleEvent::BackfillDone),
            }
        }
    }
}
