//! Several workers at a time, as nodes of one store on a database.
//!
//! ```text
//!   parent ──start──► worker 0 ─┐          each follows its share of the runs;
//!     ├─────start──► worker 1 ──┼─► store  whose partition belongs to another node, is performed there
//!     ├─────start──► worker 2 ──┘
//!     ├── kill -9 ──► ✗ one of them: the others take over what it had
//!     └─────start──► its successor, under its name or another one
//! ```

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use futures_util::future::select_all;
use indicatif::HumanCount;

use super::dice::Dice;
use super::verdict::{Judge, Verdict};
use super::{At, Folder, Job, KILL_DELAY_MAX, Worker, due_at, show_all};
use crate::cli::CrashOptions;
use crate::output::tell;

/// The workers, each with its share of the runs.
struct Nodes<'a> {
    options: &'a CrashOptions,
    folder: &'a Folder,
    /// The URL of the store, without the name of a node.
    url: String,
    workers: Vec<Member>,
    /// How many were started.
    processes: u64,
}

struct Member {
    worker: Worker,
    name: String,
    at: At,
    is_done: bool,
}

/// Runs the whole show on a database, and judges it.
pub(super) async fn show(
    options: &CrashOptions,
    folder: &Folder,
    url: &str,
    mut dice: Dice,
) -> Result<Verdict, Box<dyn Error>> {
    let url = with_schema(url)?;
    let mut nodes = Nodes {
        options,
        folder,
        url,
        workers: Vec::new(),
        processes: 0,
    };
    let began = Instant::now();
    for index in 0..options.nodes {
        let name = format!("node-{}", index + 1);
        let member = nodes.start(index, name, At::default()).await?;
        nodes.workers.push(member);
    }
    let mut killed = 0;
    for kill in 1..=options.kills {
        let due = due_at(options, kill, &mut dice);
        if !nodes.run_until(due).await? {
            tell(format_args!("kill {kill}: came too late, all was done"))?;
            continue;
        }
        tokio::time::sleep(KILL_DELAY_MAX.mul_f64(dice.fraction())).await;
        killed += 1;
        nodes.replace_one(kill, &mut dice).await?;
    }
    nodes.run_until(u64::MAX).await?;
    let url = nodes.leave().await?;
    tell(format_args!("all done in {:.2} s", began.elapsed().as_secs_f64()))?;
    show_all(options, folder, &node(&url, "last"), nodes.processes + 1).await?;
    Ok(folder.judge(Judge::of_several(killed))?)
}

impl Nodes<'_> {
    /// Starts the worker of a share, of which so much is done.
    async fn start(&mut self, share: u16, name: String, at: At) -> Result<Member, Box<dyn Error>> {
        self.processes += 1;
        let part = (self.options.nodes.into(), share.into());
        let store = node(&self.url, &name);
        let job = Job {
            part: Some(part),
            ..Job::new(&store, self.processes)
        };
        Ok(Member {
            worker: Worker::start(self.options, self.folder, &job).await?,
            name,
            at,
            is_done: false,
        })
    }

    /// Waits until `ended` runs have ended. False if all workers are done before that.
    async fn run_until(&mut self, ended: u64) -> Result<bool, Box<dyn Error>> {
        while self.workers.iter().map(|of| of.at.ended).sum::<u64>() < ended {
            let busy = self.workers.iter_mut().filter(|of| !of.is_done);
            let busy: Vec<_> = busy.map(|of| Box::pin(of.listen())).collect();
            if busy.is_empty() {
                return Ok(false);
            }
            select_all(busy).await.0?;
        }
        Ok(true)
    }

    /// Kills one, and has another go on in its place.
    async fn replace_one(&mut self, kill: u32, dice: &mut Dice) -> Result<(), Box<dyn Error>> {
        let len = self.options.nodes;
        let share = dice.below(len);
        let (acked, ended) = self.workers.iter().fold((0, 0), |(acked, ended), of| {
            (acked + of.at.acked, ended + of.at.ended)
        });
        let killed = &mut self.workers[usize::from(share)];
        killed.worker.kill().await?;
        let (former, at) = (killed.name.clone(), killed.at);
        let name = match dice.below(2) {
            0 => former.clone(),
            _ => format!("node-{}", self.processes + 1),
        };
        tell(format_args!(
            "kill {kill}: {former}, with about {} acknowledged and {} of them running on {len} nodes; {name} follows",
            HumanCount(acked),
            HumanCount(acked.saturating_sub(ended)),
        ))?;
        self.workers[usize::from(share)] = self.start(share, name, at).await?;
        Ok(())
    }

    /// Lets all of them leave in good order.
    async fn leave(&mut self) -> Result<String, Box<dyn Error>> {
        for of in &mut self.workers {
            drop(of.worker.child.stdin.take());
        }
        for of in &mut self.workers {
            of.worker.join().await?;
        }
        self.workers.clear();
        Ok(std::mem::take(&mut self.url))
    }
}

impl Member {
    /// Hears the next thing that it says.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    async fn listen(&mut self) -> Result<(), Box<dyn Error>> {
        let Some(line) = self.worker.next_line().await? else {
            self.worker.join().await?;
            return Err(format!("{} has left too early", self.name).into());
        };
        if line == "done" {
            self.is_done = true;
        } else {
            self.at = At::told(&line)?;
        }
        Ok(())
    }
}

/// The URL with a schema. Where none is given the runs do not get into one that others use.
fn with_schema(url: &str) -> Result<String, Box<dyn Error>> {
    let separator = if url.contains('?') { '&' } else { '?' };
    if url.contains("?node=") || url.contains("&node=") {
        return Err("the URL must not name a node: each process has a name of its own".into());
    }
    if url.contains("?schema=") || url.contains("&schema=") {
        return Ok(url.to_owned());
    }
    let schema = format!("millrun_crash_{}_{}", std::process::id(), Dice::from_time());
    tell(format_args!(
        "in the schema {schema}; to remove it: DROP SCHEMA {schema} CASCADE"
    ))?;
    Ok(format!("{url}{separator}schema={schema}"))
}

fn node(url: &str, name: &str) -> PathBuf {
    format!("{url}&node={name}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_of_its_own_is_added_where_none_is_given() {
        let with = |url: &str| with_schema(url).unwrap();
        assert_eq!(with("postgres://a/b?schema=c"), "postgres://a/b?schema=c");
        assert!(with("postgres://a/b").starts_with("postgres://a/b?schema=millrun_crash_"));
        assert!(with("postgres://a/b?port=1").starts_with("postgres://a/b?port=1&schema=millrun_crash_"));
        assert!(with_schema("postgres://a/b?node=c").is_err());
    }
}
