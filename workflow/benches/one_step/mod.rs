//! What the engine does for one workflow of one step: begin, call, take the result, end; each
//! event is encoded as the journal gets it.

use std::hint::black_box;

use millrun_core::{InstanceId, Partition, RunId, Timestamp};
use millrun_workflow::{
    Activity, Command, Implementation, Input, Instance, Limits, Moment, Payload, Started, Turn, Workflow,
    WorkflowContext, WorkflowError, wire,
};

const DOUBLE: Activity<u64, u64> = Activity::named("double");
const FLOW: Workflow<u64, u64> = Workflow::named("flow");

/// A shard in miniature: what it keeps from one run to the next.
pub(crate) struct Bench {
    code: Implementation,
    id: InstanceId,
    input: Payload,
    result: Payload,
    turn: Turn,
    bytes: Vec<u8>,
    unique: u64,
}

impl Bench {
    /// A workflow of this many steps in sequence.
    pub(crate) fn new(steps: u64) -> Self {
        let code = Implementation::new(FLOW, move |cx: WorkflowContext, mut value: u64| async move {
            for _ in 0..steps {
                value = cx.call(DOUBLE, value).await?;
            }
            Ok::<_, WorkflowError>(value)
        });
        Self {
            code,
            id: InstanceId::new("order-42").expect("it is short"),
            input: Payload::encode(&21_u64).expect("a number encodes"),
            result: Payload::encode(&42_u64).expect("a number encodes"),
            turn: Turn::default(),
            bytes: Vec::with_capacity(4_096),
            unique: 0,
        }
    }

    /// One run from its start to its end. Gives the size of its history in bytes.
    pub(crate) fn run(&mut self) -> usize {
        self.unique += 1;
        let moment = Moment {
            now: Timestamp::from_micros(1_700_000_000_000_000),
            epoch: 3,
        };
        let run = RunId::new(Partition::of(b"order-42"), moment.now, self.unique);
        let started = Started::new("flow", self.id.clone(), self.input.clone());
        let limits = Limits::default();
        let turn = &mut self.turn;
        self.bytes.clear();
        let mut instance = Instance::start(Some(&self.code), run, started, limits, moment, turn);
        while let Some(command) = turn.commands.pop() {
            for event in turn.events.drain(..) {
                wire::encode(&event, &mut self.bytes).expect("the engine made it");
            }
            if let Command::RunActivity {
                scheduled, attempt, ..
            } = command
            {
                let operation = scheduled.operation;
                let result = self.result.clone();
                let report = Input::ActivityCompleted {
                    operation,
                    attempt,
                    result,
                };
                instance
                    .apply(report, moment, turn)
                    .expect("the attempt was asked for");
            }
        }
        turn.events.clear();
        black_box(self.bytes.len())
    }
}
