//! Entities: commands are decided once, and a replay folds what they decided.
//!
//! Each world replays every prefix of its history, as bytes, also from what is kept at checkpoints, and compares.

use std::cell::Cell;
use std::time::Duration;

use millrun_core::{Cause, InstanceId, Timestamp};
use millrun_workflow::{
    ChildFailure, Command, Entity, EntityCommand, EntityContext, EntityState, Event, Implementation, Input,
    InputRefused, Limits, Moment, Outcome, ParkReason, Payload, PayloadError, Query, RecordTexts, Signal,
    StartRefused, Started, Topic, Workflow, WorkflowContext, WorkflowError,
};
use serde::{Deserialize, Serialize};

use crate::world::{World, run_id};

const ACCOUNT: Entity<Account> = Entity::named("account");
const DEPOSIT: EntityCommand<Account, u64, u64> = EntityCommand::named("deposit");
const WITHDRAW: EntityCommand<Account, u64, u64, Overdrawn> = EntityCommand::named("withdraw");
const REMIND: EntityCommand<Account, u64, ()> = EntityCommand::named("remind");
const FORGET: EntityCommand<Account, (), ()> = EntityCommand::named("forget");
const CHARGE_FEE: EntityCommand<Account, (), u64> = EntityCommand::named("charge-fee");
const ANNOUNCE: EntityCommand<Account, String, ()> = EntityCommand::named("announce");
const PANIC: EntityCommand<Account, (), ()> = EntityCommand::named("panic");
const BALANCE: Query<Account, (), u64> = Query::named("balance");
const NEWS: Topic<String> = Topic::named("news");
const AUDIT: Workflow<u64, ()> = Workflow::named("audit");
const MOVED: Signal<u64> = Signal::named("moved");

#[derive(Debug, Default, Serialize, Deserialize)]
struct Account {
    balance: u64,
    fees: u64,
}

#[derive(Debug, Serialize, Deserialize)]
enum AccountEvent {
    Deposited(u64),
    Withdrawn(u64),
    FeeCharged(u64),
}

#[derive(Debug, Serialize, Deserialize, PartialEq)]
struct Overdrawn {
    balance: u64,
}

impl std::fmt::Display for Overdrawn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the balance is {}", self.balance)
    }
}

impl millrun_workflow::TypedError for Overdrawn {}

thread_local! {
    /// How often a handler was called.
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

impl EntityState for Account {
    type Event = AccountEvent;

    fn begin(_key: &str) -> Self {
        Self::default()
    }

    fn apply(&mut self, event: AccountEvent) {
        match event {
            AccountEvent::Deposited(cents) => self.balance += cents,
            AccountEvent::Withdrawn(cents) => self.balance -= cents,
            AccountEvent::FeeCharged(cents) => {
                self.balance -= cents;
                self.fees += 1;
            }
        }
    }
}

type AccountContext<'a> = EntityContext<'a, Account>;

/// It makes a snapshot after each fourth command.
pub(crate) fn code() -> Implementation {
    snapshotted(4)
}

fn snapshotted(every: u32) -> Implementation {
    let deposit = |account: &Account, cents: u64, cx: &mut AccountContext<'_>| {
        CALLS.set(CALLS.get() + 1);
        cx.emit(AccountEvent::Deposited(cents));
        Ok(account.balance + cents)
    };
    let withdraw = |account: &Account, cents: u64, cx: &mut AccountContext<'_>| {
        let balance = account.balance;
        let left = balance.checked_sub(cents).ok_or(Overdrawn { balance })?;
        cx.emit(AccountEvent::Withdrawn(cents));
        Ok(left)
    };
    let remind = |_: &Account, seconds: u64, cx: &mut AccountContext<'_>| {
        cx.set_timer_in(CHARGE_FEE, Duration::from_secs(seconds));
        Ok(())
    };
    let forget = |_: &Account, (): (), cx: &mut AccountContext<'_>| {
        cx.clear_timer(CHARGE_FEE);
        Ok(())
    };
    let charge = |account: &Account, (): (), cx: &mut AccountContext<'_>| {
        if account.balance == 0 {
            return Err(WorkflowError::failed("there is nothing to take"));
        }
        cx.emit(AccountEvent::FeeCharged(1));
        cx.set_timer_in(CHARGE_FEE, Duration::from_secs(3_600));
        Ok(account.balance - 1)
    };
    let announce = |account: &Account, text: String, cx: &mut AccountContext<'_>| {
        cx.publish(NEWS, text);
        cx.start(AUDIT, format!("audit-{}", cx.key()), account.balance);
        cx.signal(AUDIT, "auditor", MOVED, account.balance);
        cx.tell(ACCOUNT, "other", DEPOSIT, 1);
        Ok(())
    };
    let panic = |_: &Account, (): (), _: &mut AccountContext<'_>| -> Result<(), WorkflowError> {
        panic!("not today")
    };
    ACCOUNT
        .command(DEPOSIT, deposit)
        .command(WITHDRAW, withdraw)
        .command(REMIND, remind)
        .command(FORGET, forget)
        .command(CHARGE_FEE, charge)
        .command(ANNOUNCE, announce)
        .command(PANIC, panic)
        .query(BALANCE, |account, ()| account.balance)
        .snapshot_every(every)
        .implementation()
}

fn began(code: Implementation, limits: Limits) -> World {
    let id = InstanceId::new(&ACCOUNT.id_of("ada")).unwrap();
    let started = Started::new(ACCOUNT.name(), id, Payload::encode(&()).unwrap());
    let moment = Moment {
        now: Timestamp::from_micros(1_000_000),
        epoch: 1,
    };
    World::start_as(Some(code), started, limits, moment)
}

/// Commands of all kinds, snapshots, a timer, a signal, an end.
pub(crate) fn recorded() -> World {
    let started = Started::new(
        ACCOUNT.name(),
        InstanceId::new("world").unwrap(),
        Payload::encode(&()).unwrap(),
    );
    let moment = Moment {
        now: Timestamp::from_micros(1_000_000),
        epoch: 1,
    };
    let mut world = World::start_as(Some(code()), started, Limits::default(), moment);
    call(&mut world, DEPOSIT, 70);
    world.apply(command(Some("r-1"), WITHDRAW, &20)).unwrap();
    call(&mut world, REMIND, 60);
    call(&mut world, ANNOUNCE, "hello".into());
    world.reopen();
    assert!(world.fire_next());
    let sender = Box::new(Cause {
        run: run_id(),
        operation: 9,
    });
    let (name, value) = (DEPOSIT.name().into(), Payload::encode(&5_u64).unwrap());
    world.apply(Input::RunSignal { sender, name, value }).unwrap();
    let (operation, run) = (World::operation(3), run_id());
    world.apply(Input::ChildStarted { operation, run }).unwrap();
    world
}

/// An entity that makes a snapshot after each third command.
fn account() -> World {
    began(snapshotted(3), Limits::default())
}

fn command<I: Serialize, A, E>(
    request: Option<&str>,
    command: EntityCommand<Account, I, A, E>,
    input: &I,
) -> Input {
    Input::Command {
        request: request.map(Into::into),
        name: command.name().into(),
        input: Payload::encode(input).unwrap(),
    }
}

/// Performs a command; its answer.
fn call<I: Serialize, A: serde::de::DeserializeOwned, E>(
    world: &mut World,
    which: EntityCommand<Account, I, A, E>,
    input: I,
) -> A {
    world.apply(command(None, which, &input)).unwrap();
    world.instance.take_command_answer().unwrap().decode().unwrap()
}

fn balance(world: &World) -> u64 {
    let nothing = Payload::encode(&()).unwrap();
    world
        .instance
        .query(BALANCE.name(), &nothing)
        .unwrap()
        .decode()
        .unwrap()
}

fn labels(world: &World) -> Vec<&'static str> {
    world.history().iter().map(|(event, _)| event.label()).collect()
}

#[test]
fn a_command_is_one_event_that_holds_what_it_decided() {
    let mut world = account();
    assert_eq!(call(&mut world, DEPOSIT, 70), 70);
    assert_eq!(call(&mut world, WITHDRAW, 20), 50);
    assert_eq!(
        labels(&world),
        ["Started", "CommandPerformed", "CommandPerformed"]
    );
    assert_eq!(balance(&world), 50);
}

#[test]
fn a_replay_calls_no_handler() {
    let mut world = account();
    for cents in 1..=5 {
        call(&mut world, DEPOSIT, cents);
    }
    let before = CALLS.get();
    world.reopen();
    assert_eq!((CALLS.get(), balance(&world)), (before, 15));
}

#[test]
fn a_handler_that_has_changed_does_not_change_what_was_decided() {
    let mut world = account();
    assert_eq!(call(&mut world, DEPOSIT, 70), 70);
    let history = world.history().to_vec();
    let doubling = |account: &Account, cents: u64, cx: &mut AccountContext<'_>| {
        cx.emit(AccountEvent::Deposited(2 * cents));
        Ok(account.balance + 2 * cents)
    };
    let code = ACCOUNT
        .command(DEPOSIT, doubling)
        .query(BALANCE, |account, ()| account.balance)
        .implementation();
    let mut world = World::from_history(Some(code), history);
    assert_eq!(balance(&world), 70);
    assert_eq!(call(&mut world, DEPOSIT, 5), 80);
}

#[test]
fn a_rejected_command_and_one_that_panics_record_nothing() {
    let mut world = account();
    call(&mut world, DEPOSIT, 10);
    let before = world.history().len();
    let refused = world.apply(command(None, WITHDRAW, &11));
    let Err(InputRefused::Rejected { error, message }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(error.decode::<Overdrawn>().unwrap(), Overdrawn { balance: 10 });
    assert_eq!(message, "the balance is 10");
    let refused = world.apply(command(None, PANIC, &()));
    assert_eq!(refused, Err(InputRefused::CommandPanicked("not today".into())));
    let unknown: EntityCommand<Account, (), ()> = EntityCommand::named("unknown");
    let refused = world.apply(command(None, unknown, &()));
    assert_eq!(
        refused,
        Err(InputRefused::UnknownCommand {
            name: "unknown".into()
        })
    );
    assert_eq!(world.history().len(), before);
    assert_eq!(call(&mut world, WITHDRAW, 4), 6);
}

#[test]
fn a_command_with_a_request_is_performed_once() {
    let mut world = account();
    let deposit = || command(Some("r-1"), DEPOSIT, &7);
    world.apply(deposit()).unwrap();
    for _ in 0..4 {
        call(&mut world, DEPOSIT, 1);
    }
    world.reopen();
    let refused = world.apply(deposit());
    let Err(InputRefused::Answered { answer: Ok(answer) }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((answer.decode::<u64>().unwrap(), balance(&world)), (7, 11));
}

#[test]
fn snapshots_are_made_and_bound_what_is_folded() {
    let mut world = account();
    for _ in 0..7 {
        call(&mut world, DEPOSIT, 1);
    }
    let checkpoints = labels(&world)
        .iter()
        .filter(|label| **label == "Checkpointed")
        .count();
    assert_eq!(checkpoints, 2);
    assert_eq!(world.instance.ledger().history_len(), 1);
    world.reopen();
    assert_eq!(balance(&world), 7);
}

#[test]
fn a_timer_performs_its_command_also_behind_a_snapshot_and_a_crash() {
    let mut world = account();
    call(&mut world, DEPOSIT, 10);
    call(&mut world, REMIND, 60);
    for _ in 0..6 {
        call(&mut world, DEPOSIT, 1);
    }
    world.reopen();
    assert!(world.fire_next());
    assert_eq!(balance(&world), 15, "the fee was charged");
    // It has set itself anew.
    assert!(world.fire_next());
    assert_eq!(balance(&world), 14);
    call(&mut world, FORGET, ());
    assert!(!world.fire_next());
}

#[test]
fn a_timer_that_is_set_again_fires_once_and_one_whose_command_is_rejected_does_nothing() {
    let mut world = account();
    call(&mut world, REMIND, 60);
    call(&mut world, REMIND, 30);
    assert_eq!(world.timers.len(), 1);
    assert!(world.fire_next());
    assert_eq!(*labels(&world).last().unwrap(), "TimerFired");
    assert_eq!((balance(&world), world.timers.len()), (0, 0));
}

#[test]
fn what_a_command_asks_for_is_in_its_turn_and_outlasts_snapshots() {
    let mut world = account();
    call(&mut world, ANNOUNCE, "hello".into());
    assert_eq!(
        labels(&world)[1..],
        [
            "CommandPerformed",
            "PublishScheduled",
            "ChildScheduled",
            "SignalScheduled",
            "SignalScheduled"
        ]
    );
    let told = |command: &Command| matches!(command, Command::SendSignal { scheduled, .. } if scheduled.id.as_str() == "account/other" && scheduled.name == "deposit");
    assert!(world.commands.iter().any(told));
    for _ in 0..4 {
        call(&mut world, DEPOSIT, 1);
    }
    world.reopen();
    assert_eq!(
        world.instance.ledger().pending_len(),
        4,
        "all are still to be done"
    );
    let (operation, run) = (World::operation(2), run_id());
    world.apply(Input::ChildStarted { operation, run }).unwrap();
    assert_eq!(
        world.instance.ledger().pending_len(),
        3,
        "the child is left to itself"
    );
}

#[test]
fn a_signal_of_another_run_is_a_command_that_is_performed_once() {
    let mut world = account();
    let sender = Cause {
        run: run_id(),
        operation: 9,
    };
    let signal = |name: &'static str| Input::RunSignal {
        sender: Box::new(sender),
        name: name.into(),
        value: Payload::encode(&5_u64).unwrap(),
    };
    world.apply(signal("deposit")).unwrap();
    world.reopen();
    world.apply(signal("deposit")).unwrap();
    assert_eq!(balance(&world), 5);
    let unknown = Input::RunSignal {
        sender: Box::new(Cause {
            operation: 10,
            ..sender
        }),
        name: "unknown".into(),
        value: Payload::encode(&5_u64).unwrap(),
    };
    assert!(matches!(
        world.apply(unknown),
        Err(InputRefused::UnknownCommand { .. })
    ));
}

#[test]
fn a_deleted_entity_ends_when_what_it_has_begun_is_done() {
    let mut world = account();
    call(&mut world, REMIND, 60);
    call(&mut world, ANNOUNCE, "bye".into());
    world.cancel();
    assert!(world.instance.ledger().outcome().is_none());
    assert_eq!(world.apply(command(None, DEPOSIT, &1)), Err(InputRefused::Ending));
    world.reopen();
    let outcome = Ok(millrun_workflow::PublishOutcome::Taken);
    world
        .apply(Input::Published {
            operation: World::operation(2),
            outcome,
        })
        .unwrap();
    for operation in [4, 5] {
        world
            .apply(Input::SignalSent {
                operation: World::operation(operation),
                outcome: Ok(()),
            })
            .unwrap();
    }
    assert!(world.instance.ledger().outcome().is_none());
    let (operation, run) = (World::operation(3), run_id());
    world.apply(Input::ChildStarted { operation, run }).unwrap();
    assert!(matches!(
        world.instance.ledger().outcome(),
        Some(Outcome::Completed(_))
    ));
}

#[test]
fn a_value_that_is_too_large_keeps_the_command_from_being_performed() {
    let mut limits = Limits::default();
    limits.payload_bytes_max = 64;
    // The input fits, and what is made of it does not.
    let telling = |_: &Account, _: u64, cx: &mut AccountContext<'_>| {
        cx.publish(NEWS, "x".repeat(100));
        Ok(0)
    };
    let code = ACCOUNT.command(DEPOSIT, telling).implementation();
    let mut world = began(code, limits);
    let refused = world.apply(command(None, DEPOSIT, &1));
    assert!(matches!(refused, Err(InputRefused::Act(_))), "{refused:?}");
    assert_eq!(labels(&world), ["Started"]);
}

#[test]
fn what_a_command_says_of_a_value_stands_in_its_publish_and_a_text_too_long_keeps_it_from_being_performed() {
    let telling = |_: &Account, bytes: u64, cx: &mut AccountContext<'_>| {
        let key = "k".repeat(usize::try_from(bytes).unwrap());
        cx.publish(NEWS, "said".into())
            .key(key)
            .correlation("basket-1")
            .content_type("text/plain");
        cx.publish(NEWS, "unsaid".into());
        Ok(0)
    };
    let code = || ACCOUNT.command(DEPOSIT, telling).implementation();
    let mut world = began(code(), Limits::default());
    world.apply(command(None, DEPOSIT, &3)).unwrap();
    let said: Vec<_> = world
        .history()
        .iter()
        .filter_map(|(event, _)| match event {
            Event::PublishScheduled(publish) => Some(publish.texts.as_deref().cloned()),
            _ => None,
        })
        .collect();
    let texts = RecordTexts {
        key: Some("kkk".into()),
        correlation: Some("basket-1".into()),
        content_type: Some("text/plain".into()),
    };
    assert_eq!(said, [Some(texts), None]);
    world.reopen();
    assert_eq!(world.instance.ledger().pending_len(), 2);

    let mut world = began(code(), Limits::default());
    let refused = world.apply(command(None, DEPOSIT, &1_025));
    let Err(InputRefused::Act(told)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(told, "the key of a record has 1025 bytes, it may have 1024");
    assert_eq!(labels(&world), ["Started"]);
}

/// A command of a timer that could not be performed was dropped, and its timer with it: the entity never woke again.
#[test]
fn a_timer_whose_command_cannot_be_performed_parks_the_entity_and_performs_it_later() {
    thread_local! {
        static BYTES: Cell<usize> = const { Cell::new(100) };
    }
    let mut limits = Limits::default();
    limits.payload_bytes_max = 64;
    let remind = |_: &Account, seconds: u64, cx: &mut AccountContext<'_>| {
        cx.set_timer_in(CHARGE_FEE, Duration::from_secs(seconds));
        Ok(())
    };
    let charge = |account: &Account, (): (), cx: &mut AccountContext<'_>| {
        cx.publish(NEWS, "x".repeat(BYTES.get()));
        cx.emit(AccountEvent::Deposited(5));
        Ok(account.balance)
    };
    let code = ACCOUNT.command(REMIND, remind).command(CHARGE_FEE, charge);
    let code = code
        .query(BALANCE, |account, ()| account.balance)
        .implementation();
    let mut world = began(code, limits).fickle();
    call(&mut world, REMIND, 60);
    assert!(world.fire_next());
    assert_eq!(labels(&world)[3..], ["Parked", "TimerFired"]);
    let parked = world.parked().unwrap().to_string();
    assert!(parked.contains("a value has 10"), "{parked}");
    world.reopen();
    world.apply(Input::Resume).unwrap();
    assert!(world.parked().is_some(), "it is too large still");
    BYTES.set(10);
    world.reopen();
    world.apply(Input::Resume).unwrap();
    assert!(world.parked().is_none());
    assert_eq!(balance(&world), 5);
}

#[test]
fn an_entity_is_told_of_a_start_that_was_refused_also_behind_a_snapshot_and_a_crash() {
    const NOTE: EntityCommand<Account, StartRefused, ()> = EntityCommand::named("note");
    for is_parked in [false, true] {
        let announce = |_: &Account, _: String, cx: &mut AccountContext<'_>| {
            cx.start(AUDIT, format!("audit-{}", cx.key()), 7);
            Ok(())
        };
        let deposit = |_: &Account, cents: u64, cx: &mut AccountContext<'_>| {
            cx.emit(AccountEvent::Deposited(cents));
            Ok(cents)
        };
        let note = |_: &Account, refused: StartRefused, cx: &mut AccountContext<'_>| {
            assert_eq!((&*refused.workflow, &*refused.id), ("audit", "audit-ada"));
            cx.emit(AccountEvent::Deposited(refused.message.len() as u64));
            Ok(())
        };
        let code = ACCOUNT.command(ANNOUNCE, announce).command(DEPOSIT, deposit);
        let code = code
            .command(NOTE, note)
            .on_start_refused(NOTE)
            .query(BALANCE, |account, ()| account.balance)
            .snapshot_every(3)
            .implementation();
        let mut world = began(code, Limits::default());
        call(&mut world, ANNOUNCE, String::new());
        for _ in 0..3 {
            call(&mut world, DEPOSIT, 1);
        }
        world.reopen();
        if is_parked {
            let reason = "a look".to_owned();
            world.apply(Input::Pause { reason }).unwrap();
        }
        let operation = World::operation(1);
        let end = Err(ChildFailure::NotStarted {
            message: "full".into(),
        });
        world.apply(Input::ChildEnded { operation, end }).unwrap();
        if is_parked {
            assert_eq!(*labels(&world).last().unwrap(), "ChildEnded");
            world.reopen();
            world.apply(Input::Resume).unwrap();
        }
        assert_eq!(balance(&world), 7);
        assert_eq!(*labels(&world).last().unwrap(), "CommandPerformed");
        world.reopen();
        assert_eq!(balance(&world), 7);
        assert_eq!(world.instance.ledger().pending_len(), 0);
    }
}

#[test]
fn an_entity_starts_no_workflow_of_millruns_own_by_its_name() {
    let announce = |_: &Account, workflow: String, cx: &mut AccountContext<'_>| {
        cx.start_untyped(workflow, "x", Payload::encode(&())?);
        Ok::<(), WorkflowError>(())
    };
    let code = ACCOUNT.command(ANNOUNCE, announce).implementation();
    let mut world = began(code, Limits::default());
    let refused = world.apply(command(None, ANNOUNCE, &"millrun.bulk".to_owned()));
    assert!(
        matches!(&refused, Err(InputRefused::Act(why)) if why.contains("millrun alone")),
        "{refused:?}"
    );
    call(&mut world, ANNOUNCE, "bulk".into());
}

#[test]
fn a_command_knows_how_many_operations_it_may_begin() {
    let mut limits = Limits::default();
    limits.pending_len_max = 3;
    let announce = |_: &Account, _: String, cx: &mut AccountContext<'_>| {
        while cx.operations_left() > 0 {
            cx.publish(NEWS, String::new());
        }
        Ok(())
    };
    let mut world = began(ACCOUNT.command(ANNOUNCE, announce).implementation(), limits);
    for _ in 0..2 {
        call(&mut world, ANNOUNCE, String::new());
        assert_eq!(world.instance.ledger().pending_len(), 3);
    }
}

/// The second version: what was a number of cents has a currency.
#[derive(Debug, Serialize, Deserialize)]
struct AccountInCurrencies {
    total: Vec<(String, u64)>,
}

impl EntityState for AccountInCurrencies {
    type Event = (String, u64);
    const VERSION: u32 = 2;

    fn begin(_key: &str) -> Self {
        Self { total: Vec::new() }
    }

    fn apply(&mut self, event: (String, u64)) {
        self.total.push(event);
    }

    fn upcast_event(_version: u32, stored: &Payload) -> Result<(String, u64), PayloadError> {
        match stored.decode()? {
            AccountEvent::Deposited(cents) => Ok(("EUR".into(), cents)),
            AccountEvent::Withdrawn(_) | AccountEvent::FeeCharged(_) => Err(PayloadError::Empty),
        }
    }

    fn upcast_state(_version: u32, stored: &Payload) -> Result<Self, PayloadError> {
        let before: Account = stored.decode()?;
        let total = vec![("EUR".into(), before.balance)];
        Ok(Self { total })
    }
}

#[test]
fn events_and_states_of_an_earlier_version_are_brought_up_to_date() {
    const TOTAL: Query<AccountInCurrencies, (), Vec<(String, u64)>> = Query::named("total");
    const ACCOUNT: Entity<AccountInCurrencies> = Entity::named("account");
    let mut world = account();
    for cents in [1, 2, 3, 4] {
        call(&mut world, DEPOSIT, cents);
    }
    let history = world.history().to_vec();
    let code = || {
        ACCOUNT
            .query(TOTAL, |state, ()| state.total.clone())
            .implementation()
    };
    let total = |world: &World| -> Vec<(String, u64)> {
        let nothing = Payload::encode(&()).unwrap();
        world
            .instance
            .query(TOTAL.name(), &nothing)
            .unwrap()
            .decode()
            .unwrap()
    };
    let of = |cents| ("EUR".to_string(), cents);
    let later = World::from_history(Some(code()), history.clone());
    assert_eq!(total(&later), [of(6), of(4)]);
    // One that cannot be keeps the run from going on, and nothing is lost.
    call(&mut world, WITHDRAW, 1);
    let later = World::from_history(Some(code()), world.history().to_vec());
    assert!(matches!(
        later.instance.park_reason(),
        Some(ParkReason::Nondeterminism(_))
    ));
    // What a later version has stored is not read by an earlier one.
    let mut newer = World::from_history(Some(code()), history);
    let (input, name) = (Payload::encode(&1_u64).unwrap(), "deposit".into());
    let refused = newer.apply(Input::Command {
        request: None,
        name,
        input,
    });
    assert!(matches!(refused, Err(InputRefused::UnknownCommand { .. })));
}

#[test]
fn an_event_that_cannot_be_folded_parks_the_run_and_is_folded_later() {
    #[derive(Serialize, Deserialize)]
    struct Fragile(u64);

    thread_local! {
        static IS_BROKEN: Cell<bool> = const { Cell::new(true) };
    }

    impl EntityState for Fragile {
        type Event = u64;

        fn begin(_key: &str) -> Self {
            Self(0)
        }

        fn apply(&mut self, event: u64) {
            assert!(!IS_BROKEN.get(), "broken");
            self.0 += event;
        }
    }
    const FRAGILE: Entity<Fragile> = Entity::named("account");
    const ADD: EntityCommand<Fragile, u64, ()> = EntityCommand::named("deposit");
    const SUM: Query<Fragile, (), u64> = Query::named("balance");
    let add = |_: &Fragile, more: u64, cx: &mut EntityContext<'_, Fragile>| {
        cx.emit(more);
        cx.publish(NEWS, "added".into());
        Ok(())
    };
    let code = FRAGILE
        .command(ADD, add)
        .query(SUM, |sum, ()| sum.0)
        .implementation();
    let mut world = began(code, Limits::default()).fickle();
    world.apply(command(None, DEPOSIT, &5)).unwrap();
    assert_eq!(
        labels(&world)[1..],
        ["Parked", "CommandPerformed", "PublishScheduled"]
    );
    IS_BROKEN.set(false);
    world.reopen();
    world.apply(Input::Resume).unwrap();
    assert_eq!(balance(&world), 5);
    world.apply(command(None, DEPOSIT, &6)).unwrap();
    assert_eq!(balance(&world), 11);
}

#[test]
fn a_history_that_is_no_entitys_parks_the_run() {
    async fn plain(cx: WorkflowContext, _: u64) -> Result<(), WorkflowError> {
        cx.sleep(Duration::from_secs(1)).await?;
        cx.record(|| 1).await?;
        Ok(())
    }
    const PLAIN: Workflow<u64, ()> = Workflow::named("account");
    let mut world = World::start(Implementation::new(PLAIN, plain), &1_u64);
    assert!(world.fire_next());
    let history = world.history()[..3].to_vec();
    let world = World::from_history(Some(code()), history);
    drop(world);
    let entity = account();
    let world = World::from_history(Some(Implementation::new(PLAIN, plain)), {
        let mut entity = entity;
        call(&mut entity, DEPOSIT, 1);
        entity.history().to_vec()
    });
    assert!(matches!(
        world.instance.park_reason(),
        Some(ParkReason::Nondeterminism(_))
    ));
}

#[derive(Debug, Clone)]
enum Step {
    Deposit(u8, Option<u8>),
    Withdraw(u8),
    Remind,
    Forget,
    Fire,
    Reopen,
}

/// What an account is to be, told without an engine.
#[derive(Default)]
struct Naive {
    balance: u64,
    requests: Vec<(u8, u64)>,
    is_timed: bool,
}

proptest::proptest! {
    #[test]
    fn it_is_as_a_naive_one_whatever_happens(steps in proptest::collection::vec(step(), 0..60)) {
        let mut world = account();
        let mut naive = Naive::default();
        for step in steps {
            match step {
                Step::Deposit(cents, None) => {
                    naive.balance += u64::from(cents);
                    assert_eq!(call(&mut world, DEPOSIT, cents.into()), naive.balance);
                }
                Step::Deposit(cents, Some(request)) => {
                    let applied = world.apply(command(Some(&format!("r-{request}")), DEPOSIT, &cents.into()));
                    match naive.requests.iter().find(|(known, _)| *known == request) {
                        Some((_, answer)) => {
                            let answer = Ok(Payload::encode(answer).unwrap());
                            assert_eq!(applied, Err(InputRefused::Answered { answer }));
                        }
                        None => {
                            applied.unwrap();
                            naive.balance += u64::from(cents);
                            naive.requests.push((request, naive.balance));
                        }
                    }
                }
                Step::Withdraw(cents) => {
                    let applied = world.apply(command(None, WITHDRAW, &cents.into()));
                    match naive.balance.checked_sub(cents.into()) {
                        Some(left) => {
                            applied.unwrap();
                            naive.balance = left;
                        }
                        None => assert!(matches!(applied, Err(InputRefused::Rejected { .. }))),
                    }
                }
                Step::Remind => {
                    call(&mut world, REMIND, 60);
                    naive.is_timed = true;
                }
                Step::Forget => {
                    call(&mut world, FORGET, ());
                    naive.is_timed = false;
                }
                Step::Fire => {
                    assert_eq!(world.fire_next(), naive.is_timed);
                    if naive.is_timed {
                        naive.is_timed = naive.balance > 0;
                        naive.balance = naive.balance.saturating_sub(1);
                    }
                }
                Step::Reopen => world.reopen(),
            }
            assert_eq!(balance(&world), naive.balance);
        }
    }
}

fn step() -> impl proptest::strategy::Strategy<Value = Step> {
    use proptest::prelude::*;
    prop_oneof![
        4 => (any::<u8>(), proptest::option::of(0_u8..4)).prop_map(|(cents, request)| Step::Deposit(cents, request)),
        2 => any::<u8>().prop_map(Step::Withdraw),
        1 => Just(Step::Remind),
        1 => Just(Step::Forget),
        2 => Just(Step::Fire),
        1 => Just(Step::Reopen),
    ]
}
