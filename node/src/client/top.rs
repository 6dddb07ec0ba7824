//! A table of what a program does, again and again: `millrun top`.
//!
//! ```text
//!   stats, counts, parts ── each second ──► sample ──┬─► rates, with the sample before
//!                                                    └─► workflows, queues, parts
//! ```

use std::error::Error;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use super::error::ClientError;
use super::options::Top;
use super::place::client;
use super::raw::Raw;
use super::show;
use super::wire::{Ask, Client};
use crate::outcome::Outcome;
use crate::output::tell;
use crate::table::Table;

/// How many rows of each table are shown on a terminal; the rest is counted.
const ROWS_MAX: usize = 20;

/// What a program told at one time.
struct Sample {
    at: Instant,
    stats: Raw,
    counts: Raw,
    parts: Raw,
}

impl Sample {
    async fn of(client: &Client) -> Result<Self, ClientError> {
        let asked = async |operation| {
            let ask = Ask {
                operation,
                ..Ask::default()
            };
            Raw::parse(&client.ask(ask).await?)
        };
        Ok(Self {
            stats: asked("stats").await?,
            counts: asked("counts").await?,
            parts: asked("parts").await?,
            at: Instant::now(),
        })
    }
}

/// Shows what a program does, until Ctrl-C; once where it is asked for, or where nobody looks on.
pub(super) async fn top(options: Top) -> Result<Outcome, Box<dyn Error>> {
    let client = client(&options.at).await?;
    let every = Duration::from_secs(options.every_s.max(1).into());
    let is_once = options.once || !std::io::stdout().is_terminal();
    let mut before: Option<Sample> = None;
    loop {
        let sample = Sample::of(&client).await?;
        let (rows_max, clear) = match is_once {
            true => (usize::MAX, ""),
            // Clears the screen, and begins at its top.
            false => (ROWS_MAX, "\x1b[2J\x1b[H"),
        };
        tell(format_args!(
            "{clear}{}",
            shown(before.as_ref(), &sample, rows_max)
        ))?;
        if is_once {
            return Ok(Outcome::Complete);
        }
        before = Some(sample);
        tokio::time::sleep(every).await;
    }
}

/// A sample as text; with the one before it, what was done in a second since.
fn shown(before: Option<&Sample>, sample: &Sample, rows_max: usize) -> String {
    let journal = |sample: &Sample| sample.stats.get("journal");
    let total = |sample: &Sample, name: &str| match name {
        "commits" | "turns" => journal(sample).and_then(|journal| journal.number_of(name)),
        _ => sample.stats.number_of(name),
    };
    let mut head = vec![
        format!("live {}", sample.stats.text_of("live")),
        format!("parked {}", sample.stats.text_of("parked")),
        format!("attempts {}", sample.stats.text_of("attempts_running")),
    ];
    if let Some(last) = journal(sample).and_then(|journal| journal.number_of("last_commit_us")) {
        head.push(format!("last commit {last} us"));
    }
    for name in ["started", "finished", "turns", "commits"] {
        let now = total(sample, name).unwrap_or_default();
        head.push(match before {
            Some(before) => {
                let then = total(before, name).unwrap_or_default();
                format!(
                    "{name}/s {}",
                    per_second(now.saturating_sub(then), sample.at - before.at)
                )
            }
            None => format!("{name} {now}"),
        });
    }
    let mut queues = Table::of(["queue", "running", "waiting"]);
    let all = sample.stats.list_of("queues");
    for queue in all.iter().take(rows_max) {
        let of = |len: &str, max: &str| format!("{} of {}", queue.text_of(len), queue.text_of(max));
        queues.row([
            queue.text_of("name"),
            of("running", "running_max"),
            of("waiting", "waiting_max"),
        ]);
    }
    let mut text = format!(
        "{}\n\n{}\n\n{queues}{}",
        head.join("   "),
        show::counts_up_to(&sample.counts, rows_max),
        more(all.len(), rows_max)
    );
    let parts = sample.parts.list_of("parts");
    let ended = parts.iter().filter(|part| part.text_of("is_running") != "true");
    let ended: Vec<_> = ended.map(|part| part.text_of("name")).collect();
    let restarts: u64 = parts.iter().filter_map(|part| part.number_of("restarts")).sum();
    text.push_str(&format!("\n\nparts {}   restarts {restarts}", parts.len()));
    if !ended.is_empty() {
        let named = &ended[..ended.len().min(rows_max)];
        text.push_str(&format!(
            "   not running: {}",
            crate::table::on_one_line(&named.join(", "))
        ));
    }
    text
}

/// How many rows are not shown.
pub(super) fn more(len: usize, rows_max: usize) -> String {
    match len.saturating_sub(rows_max) {
        0 => String::new(),
        more => format!("\n({more} more)"),
    }
}

fn per_second(count: u64, time: Duration) -> u64 {
    let micros = time.as_micros().max(1);
    u64::try_from(u128::from(count) * 1_000_000 / micros).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: Instant, started: u64, commits: u64) -> Sample {
        let queue = |name: &str| serde_json::json!({"name": name, "running": 1, "running_max": 8, "waiting": 0, "waiting_max": 9});
        let stats = serde_json::json!({
            "live": 5, "parked": 1, "attempts_running": 2, "started": started, "finished": 0,
            "queues": [queue("default"), queue("gpu"), queue("mail")],
            "journal": {"commits": commits, "turns": commits * 3, "last_commit_us": 410},
        });
        let parts = serde_json::json!({"parts": [
            {"name": "shard 0", "is_running": true, "restarts": 2},
            {"name": "pool\u{7}", "is_running": false, "restarts": 0},
        ]});
        let parse = |value: serde_json::Value| Raw::parse(&value.to_string()).unwrap();
        Sample {
            at,
            stats: parse(stats),
            counts: parse(serde_json::json!({"workflows": [{"workflow": "order", "running": 5}]})),
            parts: parse(parts),
        }
    }

    #[test]
    fn rates_are_told_once_there_are_two_samples_and_further_rows_are_counted() {
        let begin = Instant::now();
        let first = sample(begin, 100, 10);
        let told = shown(None, &first, usize::MAX);
        assert!(
            told.contains("started 100") && told.contains("commits 10"),
            "{told}"
        );
        assert!(told.contains("mail") && !told.contains("more)"), "{told}");
        let second = sample(begin + Duration::from_secs(2), 300, 20);
        let told = shown(Some(&first), &second, 2);
        for expected in [
            "live 5",
            "last commit 410 us",
            "started/s 100",
            "commits/s 5",
            "turns/s 15",
            "default  1 of 8   0 of 9",
            "(1 more)",
            "order",
            "restarts 2",
            "not running: pool\\u{7}",
        ] {
            assert!(told.contains(expected), "{expected} is not in {told}");
        }
    }
}
