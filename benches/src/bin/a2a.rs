//! How many messages per second reach an actor through a broker, here and elsewhere?
//!
//! In memory, nothing durable. `--quick` takes less than a minute.

use std::process::ExitCode;

use clap::Parser;
use millrun_benches::a2a::{Contest, Effort, Group, charts, tables};
use millrun_benches::{BenchError, CommonArguments, Program, exit};

/// Producer actor, broker topic, consumer actor: millrun beside other actor libraries.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Only these shapes of load.
    #[arg(long, value_name = "GROUP", value_delimiter = ',', value_enum)]
    group: Option<Vec<Group>>,
    /// Only these numbers of messages, the largest last.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..))]
    messages: Option<Vec<u64>>,
}

fn main() -> ExitCode {
    exit(run(Arguments::parse()))
}

fn run(arguments: Arguments) -> Result<(), BenchError> {
    let program = Program::begin("a2a", &arguments.common)?;
    let mut effort = if arguments.common.quick {
        Effort::quick()
    } else {
        Effort::full()
    };
    if let Some(rounds) = arguments.common.rounds {
        effort.rounds = rounds.into();
    }
    if let Some(messages) = arguments.messages {
        effort.messages = messages;
    }
    let groups = arguments.group.unwrap_or_else(|| Group::ALL.into());
    let rows = Contest::new(effort, arguments.common.only).run(&groups)?;
    program.finish(&rows, &tables(&rows), &charts(&rows))?;
    if rows.iter().any(|row| row.measured_messages < row.messages) {
        println!("* measured on fewer messages: a sample with all of them would take too long");
    }
    Ok(())
}
