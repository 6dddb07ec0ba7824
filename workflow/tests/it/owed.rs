//! A naive account of what the world owes a run: what its commands have asked for, less what inputs have reported.
//!
//! A host that takes a run over, from its history alone, must come to the same account.

use std::collections::{BTreeMap, BTreeSet};

use millrun_core::Timestamp;
use millrun_workflow::{Command, Event, Input, Ledger, Moment, OperationId};

/// One thing that the world has been asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Debt {
    Attempt,
    Child,
    Publish,
    Receive,
    Signal,
    Timer(Timestamp),
}

/// What each operation is owed.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    debts: BTreeMap<OperationId, BTreeSet<Debt>>,
    /// When it is to be told that it is out of time.
    time_out: Option<Timestamp>,
    /// The latest time that was seen. A clock that goes back makes a pause that was over begin again for a new
    /// owner, which is told apart from a debt that is forgotten.
    latest: Timestamp,
}

impl Owed {
    /// What a host that takes the run over is told to do.
    fn recovered(ledger: &Ledger, moment: Moment) -> Self {
        let mut owed = Self {
            time_out: ledger.deadline().map(|deadline| deadline.at),
            ..Self::default()
        };
        for (operation, pending) in ledger.pending() {
            let since = ledger.pending_since(operation).unwrap();
            let mut commands = Vec::new();
            pending.commands(operation, since, moment, true, &mut commands);
            commands.iter().for_each(|command| owed.command(command));
        }
        owed
    }

    /// What is owed to a run that is taken up from its history.
    pub(crate) fn taken_up(ledger: &Ledger, moment: Moment) -> Self {
        Self::recovered(ledger, moment)
    }

    fn add(&mut self, operation: OperationId, debt: Debt) {
        self.debts.entry(operation).or_default().insert(debt);
    }

    fn remove(&mut self, operation: OperationId, debt: Debt) {
        if let Some(debts) = self.debts.get_mut(&operation) {
            debts.remove(&debt);
        }
    }

    pub(crate) fn command(&mut self, command: &Command) {
        match command {
            Command::RunActivity { scheduled, .. } => self.add(scheduled.operation, Debt::Attempt),
            Command::CancelActivity { operation, .. } => self.remove(*operation, Debt::Attempt),
            Command::Publish { scheduled, .. } => self.add(scheduled.operation, Debt::Publish),
            Command::CancelPublish { operation } => self.remove(*operation, Debt::Publish),
            Command::Receive { scheduled, .. } => self.add(scheduled.operation, Debt::Receive),
            Command::CancelReceive(scheduled) => self.remove(scheduled.operation, Debt::Receive),
            Command::SendSignal { scheduled, .. } => self.add(scheduled.operation, Debt::Signal),
            Command::CancelSignal { operation } => self.remove(*operation, Debt::Signal),
            Command::StartChild { scheduled, .. } => self.add(scheduled.operation, Debt::Child),
            Command::CancelChild { .. } => {}
            Command::CloseChild(scheduled) => self.remove(scheduled.operation, Debt::Child),
            Command::StartTimer { operation, deadline } => self.add(*operation, Debt::Timer(*deadline)),
            Command::CancelTimer { operation, deadline } => self.remove(*operation, Debt::Timer(*deadline)),
            Command::TimeOutAt { at } => self.time_out = Some(*at),
            Command::CancelTimeOut { at } => {
                self.time_out.take_if(|time_out| time_out == at);
            }
            Command::Close(_) => self.debts.clear(),
            Command::ContinueAsNew { .. } | Command::ResumeAt { .. } | Command::Park(_) => {}
        }
    }

    /// Nobody waits any more for an operation that was let go of.
    pub(crate) fn event(&mut self, event: &Event) {
        if let Event::OperationCancelled { operation } = event {
            self.debts.remove(operation);
        }
    }

    /// The world has reported this, and was believed.
    pub(crate) fn reported(&mut self, input: &Input, now: Timestamp) {
        match input {
            Input::ActivityCompleted { operation, .. } | Input::AttemptFailed { operation, .. } => {
                self.remove(*operation, Debt::Attempt);
            }
            Input::TimerFired { operation } => {
                if let Some(debts) = self.debts.get_mut(operation) {
                    debts.retain(|debt| !matches!(debt, Debt::Timer(deadline) if *deadline <= now));
                }
            }
            Input::TimeOut => self.time_out = None,
            Input::ChildEnded { operation, .. } => self.remove(*operation, Debt::Child),
            Input::Published { operation, .. } => self.remove(*operation, Debt::Publish),
            Input::RecordReceived { operation, .. } => self.remove(*operation, Debt::Receive),
            Input::SignalSent { operation, .. } => self.remove(*operation, Debt::Signal),
            _ => {}
        }
    }

    /// A host that takes the run over now does what it is owed, and nothing else.
    pub(crate) fn check(&mut self, ledger: &Ledger, moment: Moment) {
        self.latest = self.latest.max(moment.now);
        let moment = Moment {
            now: self.latest,
            ..moment
        };
        let recovered = Self::recovered(ledger, moment);
        assert_eq!(recovered.time_out, self.time_out, "it is out of time when it was");
        let recovered = recovered.debts;
        let mut owed = self.debts.clone();
        owed.retain(|_, debts| !debts.is_empty());
        for (operation, debts) in &mut owed {
            let again = recovered.get(operation).cloned().unwrap_or_default();
            // A pause that is over leads to the attempt at once.
            let over = debts
                .iter()
                .copied()
                .find(|debt| matches!(debt, Debt::Timer(at) if *at <= moment.now) && !again.contains(debt));
            if let Some(over) = over
                && again.contains(&Debt::Attempt)
            {
                debts.remove(&over);
                debts.insert(Debt::Attempt);
            }
        }
        assert_eq!(recovered, owed, "what is done again is what is owed");
    }
}
