//! A child process is killed in the middle of its work, again and again; what it had acknowledged
//! is there in the end.
//!
//! The child is this test binary, told by a variable in its environment to work instead of test.
//! It says on its standard output what was acknowledged; the parent, which reads that, is not killed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use millrun::{Runtime, RuntimeBuilder};

use crate::support::{DOUBLE, QUADRUPLE, double, quadruple};

const STORE: &str = "MILLRUN_TEST_KILL_STORE";
const ROUND: &str = "MILLRUN_TEST_KILL_ROUND";
const KILLS: u64 = 20;

fn builder(path: &Path) -> RuntimeBuilder {
    Runtime::open(path)
        .register(DOUBLE, double)
        .register(QUADRUPLE, quadruple)
}

/// The child's work: start as many workflows as it can, and say which start returned and which
/// result was seen. It does not end by itself.
#[test]
fn child_of_the_kill_test() {
    let (Ok(path), Ok(round)) = (std::env::var(STORE), std::env::var(ROUND)) else {
        // Run as an ordinary test, there is nothing to do.
        return;
    };
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    tokio.block_on(async {
        let runtime = builder(Path::new(&path)).start().await.unwrap();
        let mut tasks = Vec::new();
        for lane in 0..32_u64 {
            let (runtime, round) = (runtime.clone(), round.clone());
            tasks.push(tokio::spawn(async move {
                for number in 0.. {
                    let id = format!("{round}-{lane}-{number}");
                    let run = runtime.start(QUADRUPLE, &id, number).await.unwrap();
                    println!("started {id} {number}");
                    let result = run.result().await.unwrap();
                    println!("finished {id} {result}");
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn nothing_acknowledged_is_lost_over_twenty_kills() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let mut started = BTreeMap::new();
    let mut finished = BTreeMap::new();
    for round in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "kill::child_of_the_kill_test",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(STORE, &path)
            .env(ROUND, round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Another moment each time, counted in what the child has said.
        let lines_max = 50 + (round * 197) % 1_500;
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines_len = 0;
        for line in lines.map_while(Result::ok) {
            lines_len += 1;
            if lines_len == lines_max {
                child.kill().unwrap();
            }
            // What was said before the kill counts, also if it is read after it. The last line
            // may be torn.
            let mut words = line.split(' ');
            if let (Some(what), Some(id), Some(Ok(number)), None) = (
                words.next(),
                words.next(),
                words.next().map(str::parse::<u64>),
                words.next(),
            ) {
                match what {
                    "started" => started.insert(id.to_string(), number),
                    "finished" => finished.insert(id.to_string(), number),
                    _ => None,
                };
            }
        }
        child.wait().unwrap();
        assert!(
            lines_len >= lines_max,
            "the child of round {round} ended by itself"
        );
    }
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    tokio.block_on(async {
        let runtime = builder(&path).start().await.unwrap();
        assert!(
            started.len() >= 1_000,
            "only {} starts were acknowledged",
            started.len()
        );
        for (id, number) in &started {
            let result = runtime.attach(QUADRUPLE, id).unwrap().result().await;
            assert_eq!(result.unwrap(), number * 4, "{id}");
        }
        for (id, seen) in &finished {
            let result = runtime.attach(QUADRUPLE, id).unwrap().result().await;
            assert_eq!(result.unwrap(), *seen, "the result of {id} has changed");
        }
        runtime.shutdown().await.unwrap();
    });
}
