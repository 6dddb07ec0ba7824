//! How many messages per second reach an actor through a broker, here and elsewhere?
//!
//! In memory, nothing durable. `--quick` takes less than a minute.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use millrun_benches::a2a::{Contest, Effort, Group, charts, tables};
use millrun_benches::{Bars, BenchError, Machine, Output, Verdict};

/// Producer actor, broker topic, consumer actor: millrun beside other actor libraries.
#[derive(Debug, Parser)]
struct Arguments {
    /// Fewer and shorter samples: less than a minute.
    #[arg(long)]
    quick: bool,
    /// Samples per contestant and cell.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Only contestants whose name contains this.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Only these shapes of load.
    #[arg(long, value_name = "GROUP", value_delimiter = ',', value_enum)]
    group: Option<Vec<Group>>,
    /// Only these numbers of messages.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..))]
    messages: Option<Vec<u64>>,
    /// Where the results go, in place of target/bench.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-a2a: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), BenchError> {
    let output = Output::open(arguments.out)?;
    let bars = Bars::load()?;
    let mut effort = if arguments.quick {
        Effort::quick()
    } else {
        Effort::full()
    };
    if let Some(rounds) = arguments.rounds {
        effort.rounds = rounds.into();
    }
    if let Some(messages) = arguments.messages {
        effort.messages = messages;
    }

    let started = Instant::now();
    let machine = Machine::current();
    println!("{machine}");
    let rows = Contest::new(effort, arguments.only).run(arguments.group.as_deref().unwrap_or(&Group::ALL))?;
    for table in tables(&rows) {
        print!("{table}");
    }
    if rows.iter().any(|row| row.measured_messages < row.messages) {
        println!("* measured on fewer messages: a sample with all of them would take too long");
    }
    let verdicts = bars.judge("a2a", &rows)?;
    let path = output.write("a2a", &machine, &rows, &verdicts)?;
    for (name, chart) in charts(&rows) {
        chart.write(&output.folder().join(format!("{name}.svg")))?;
    }
    if !verdicts.is_empty() {
        print!("{}", Verdict::table(&verdicts));
    }
    println!(
        "\n{:.0} s; rows: {}, plots beside it",
        started.elapsed().as_secs_f64(),
        path.display()
    );
    Ok(())
}
